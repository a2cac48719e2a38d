#include "runtime/stopwatch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "runtime/calibration_limits.h"
#include "runtime/formats/float_formats.h"
#include "runtime/initial_values.h"
#include "runtime/last_cache.h"
#include "sim/plan/memory.h"
#include "sim/quantile.h"

namespace runtime {
namespace {

constexpr std::size_t kTemplate = 4 << 20;  // bytes of random numbers, repeated
constexpr std::size_t kMostCopies = 16;
// The fewest copies of operands with which none is in a cache when it comes again.
constexpr std::size_t kFewestCopies = 3;

std::vector<std::byte> bytes_of(const void* data, std::size_t size) {
  const auto* const first = static_cast<const std::byte*>(data);
  return {first, first + size};
}

}  // namespace

RunSettings settings_to_time(const sim::Operation& operation) {
  RunSettings settings;
  settings.adamw = {
      .learning_rate = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .step = 1};
  // An operation of ranks that divide sequences runs as on the first of two ranks.
  settings.context = {2, 0};
  settings.vocabulary = {0, operation.dims.vocab};
  return settings;
}

namespace {

Timing timing_of(const std::vector<double>& samples) {
  const double median = sim::quantile(samples, 0.5);
  return {median,
          *std::min_element(samples.begin(), samples.end()),
          std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size()),
          (sim::quantile(samples, 0.9) - sim::quantile(samples, 0.1)) / median,
          {}};
}

}  // namespace

Stopwatch::Stopwatch(Device& device, sim::Bytes memory, sim::Bytes rotation, sim::DType stored,
                     SampleLength length)
    : device_(device), arena_(device, memory), rotation_(rotation), stored_(stored), length_(length) {
  std::vector<float> values(kTemplate / sizeof(float));
  draw_parameter({}, 1, "calibration", 0, values);
  std::vector<std::uint16_t> narrow(values.size());
  std::transform(values.begin(), values.end(), narrow.begin(), f32_to_bf16);
  bf16_template_ = bytes_of(narrow.data(), kTemplate / 2);
  std::transform(values.begin(), values.end(), narrow.begin(), f32_to_f16);
  f16_template_ = bytes_of(narrow.data(), kTemplate / 2);
  // The upper half of an fp16 number is an 8-bit float: random numbers in either of the two formats.
  std::vector<std::uint8_t> bytes(values.size());
  std::transform(narrow.begin(), narrow.end(), bytes.begin(),
                 [](std::uint16_t half) { return static_cast<std::uint8_t>(half >> 8); });
  fp8_template_ = bytes_of(bytes.data(), kTemplate / 4);
  for (float& value : values) value = std::abs(value);  // in fp32, of second moments the root is taken
  template_ = bytes_of(values.data(), kTemplate);
  fill_with_template(arena_.at({}), static_cast<std::size_t>(memory.value), stored);
}

sim::Bytes Stopwatch::uncached_memory(const SingleOperation& single) {
  return operands_size(single) * static_cast<std::int64_t>(kFewestCopies + 1);
}

Timing Stopwatch::time_cached(const SingleOperation& single) {
  bind(single, {}, rotation_, kMostCopies, true);
  double warm_up = 0;
  for (std::size_t turn = 0; turn < bound_.size() && warm_up < length_.seconds; ++turn)
    warm_up += run_once(turn);
  if (!device_.can_replay()) return repeat(length_.most, 0);
  constexpr double kReplay = 5e-4;  // seconds, of which a replay's own start is a hundredth
  return repeat_in_a_row(runs_of(kReplay, 1), true);
}

Timing Stopwatch::time_uncached(const SingleOperation& single) {
  if (device_.can_replay()) {
    bind(single, {}, arena_.size(), kMostReplayed, false);
    constexpr double kReplay = 0.01;
    const std::size_t runs = std::min(runs_of(kReplay, kFewestCopies + 1), bound_.size());
    Timing timing = repeat_in_a_row(runs, true);
    timing.working_set = operands_size(single) * static_cast<std::int64_t>(runs);
    return timing;
  }
  if (cursor_ + uncached_memory(single) > arena_.size()) cursor_ = {};
  bind(single, cursor_, arena_.size() - cursor_, length_.most + 1, false);
  run_once(0);  // wakes the threads and warms the code
  Timing timing = repeat(std::min(length_.most, bound_.size() - 1), 1);
  timing.working_set = arena_.size();
  cursor_ += operands_size(single) * static_cast<std::int64_t>(bound_.size());
  return timing;
}

Timing Stopwatch::time_in_a_row(const SingleOperation& single, std::size_t runs, bool replayed) {
  bind(single, {}, rotation_, kMostCopies, true);
  return repeat_in_a_row(runs, replayed);
}

Timing Stopwatch::time_in_turn(std::span<const SingleOperation> turn) {
  const sim::Bytes each{rotation_.value / std::ssize(turn)};
  std::vector<std::vector<BoundOperand>> operands;  // which the bound operations refer to
  std::vector<std::vector<BoundOperation>> bound;
  for (std::size_t i = 0; i < turn.size(); ++i) {
    bind(turn[i], {each.value * static_cast<std::int64_t>(i)}, each, kMostCopies, true);
    operands.push_back(std::move(operands_));
    bound.push_back(std::move(bound_));
  }
  bound_.clear();
  constexpr std::size_t kRounds = kMostCopies;
  for (std::size_t round = 0; round < kRounds; ++round)
    for (const std::vector<BoundOperation>& of_one : bound) bound_.push_back(of_one[round % of_one.size()]);
  Timing timing = repeat_in_a_row(bound_.size(), device_.can_replay());
  for (double Timing::*time : {&Timing::median, &Timing::least, &Timing::mean})
    timing.*time *= static_cast<double>(turn.size());
  bound_.clear();
  return timing;
}

std::size_t Stopwatch::runs_of(double seconds, std::size_t least) {
  run_once(0);  // code may still be compiled
  return static_cast<std::size_t>(
      std::clamp(seconds / run_once(0), static_cast<double>(least), static_cast<double>(kMostReplayed)));
}

Timing Stopwatch::repeat_in_a_row(std::size_t runs, bool replayed) {
  const RunSettings settings = settings_to_time(*bound_.front().operation);
  const auto run_all = [&] {
    for (std::size_t turn = 0; turn < runs; ++turn) device_.run(bound_[turn % bound_.size()], settings);
  };
  device_.begin(settings);
  run_all();  // warm-up
  if (replayed) {
    device_.begin_capture();
    run_all();
    device_.end_capture(0);
    device_.replay(0);
  }
  std::vector<double> samples;
  double sum = 0;
  while (samples.size() < length_.fewest || (samples.size() < length_.most && sum < length_.seconds)) {
    std::array<double, 2> stamps{};
    device_.record(0);
    if (replayed)
      device_.replay(0);
    else
      run_all();
    device_.record(1);
    device_.synchronise();
    device_.stamps(stamps);
    sum += stamps[1];
    samples.push_back(stamps[1] / static_cast<double>(runs));
  }
  if (replayed) device_.drop_captures();
  return timing_of(samples);
}

std::vector<double> Stopwatch::time_for(const SingleOperation& single, double seconds,
                                        const std::stop_token& stop) {
  bind(single, {}, rotation_, kMostCopies, true);
  const RunSettings settings = settings_to_time(*bound_.front().operation);
  const double one = run_once(0);
  // Long enough that the look in between is no pause, short enough to see the clock rate fall.
  constexpr double kBatchSeconds = 0.02;
  const auto batch = static_cast<std::size_t>(std::max(1.0, kBatchSeconds / one));
  std::vector<double> samples;
  for (double sum = 0; sum < seconds && !stop.stop_requested();) {
    std::array<double, 2> stamps{};
    device_.record(0);
    for (std::size_t turn = 0; turn < batch; ++turn) device_.run(bound_[turn % bound_.size()], settings);
    device_.record(1);
    device_.synchronise();
    device_.stamps(stamps);
    sum += stamps[1];
    samples.push_back(stamps[1] / static_cast<double>(batch));
  }
  return samples;
}

double Stopwatch::run_once(std::size_t turn, std::size_t in_a_row) {
  const RunSettings settings = settings_to_time(*bound_.front().operation);
  std::array<double, 2> stamps{};
  device_.begin(settings);
  device_.record(0);
  for (std::size_t i = 0; i < in_a_row; ++i) device_.run(bound_[(turn + i) % bound_.size()], settings);
  device_.record(1);
  device_.synchronise();
  device_.stamps(stamps);
  return stamps[1] / static_cast<double>(in_a_row);
}

// Enough runs that a tick of the clock more or less is 5 % of their time. In the first try code may still be
// compiled.
std::size_t Stopwatch::runs_between_looks(std::size_t first) {
  constexpr double kTicks = 20;
  const double least = kTicks * calibration_limits().tick;
  const auto too_short = [&](std::size_t runs) {
    for (int tries = 0; tries < 3; ++tries)
      if (run_once(first, runs) * static_cast<double>(runs) < least) return true;
    return false;
  };
  std::size_t runs = 1;
  while (least > 0 && too_short(runs)) runs *= 2;
  return runs;
}

// Runs from turn `first` on, until the sample's time is over, or `most` runs are.
Timing Stopwatch::repeat(std::size_t most, std::size_t first) {
  const std::size_t in_a_row = runs_between_looks(first);
  std::vector<double> samples;
  double sum = 0;
  while (samples.size() < std::min(most, length_.fewest) ||
         (samples.size() < most && sum < length_.seconds)) {
    samples.push_back(run_once(first + samples.size(), in_a_row));
    sum += samples.back() * static_cast<double>(in_a_row);
  }
  return timing_of(samples);
}

// Binds copies of the operands from `offset` on, as many as fit into `room`, at most `most`. Filling brings
// them into the caches. Unfilled, they hold what the constructor or an earlier operation left, which other
// types cannot read as values: operands of other types are filled, then dropped from the caches.
void Stopwatch::bind(const SingleOperation& single, sim::Bytes offset, sim::Bytes room, std::size_t most,
                     bool filled) {
  const sim::Bytes one = operands_size(single);
  const auto copies = static_cast<std::size_t>(std::clamp<std::int64_t>(
      room.value / std::max<std::int64_t>(one.value, 1), 1, static_cast<std::int64_t>(most)));
  operands_.clear();
  bound_.clear();
  operands_.reserve(copies * single.operation().operands.size());  // spans into it are kept
  for (std::size_t copy = 0; copy < copies; ++copy) {
    const std::size_t first = operands_.size();
    for (const sim::Operand& operand : single.operation().operands) {
      if (operand.buffer == sim::kNoBuffer) {
        operands_.push_back({});
        continue;
      }
      const sim::Buffer& buffer = single.buffer(operand.buffer);
      const sim::Bytes bytes = buffer.bytes(single.bound_variables());
      arena_.touch(offset, bytes);
      operands_.push_back({arena_.at(offset), bytes.value, buffer.dtype});
      if (filled || buffer.dtype != stored_) fill(single, buffer.dtype, operands_.back());
      if (!filled && buffer.dtype != stored_ && device_.shares_host_memory())
        drop_from_caches({arena_.at(offset), static_cast<std::size_t>(bytes.value)});
      offset += sim::aligned(bytes);
    }
    bound_.push_back({&single.operation(), single.bound_variables(), std::span(operands_).subspan(first)});
  }
}

void Stopwatch::fill(const SingleOperation& single, sim::DType dtype, const BoundOperand& operand) {
  const auto bytes = static_cast<std::size_t>(operand.bytes);
  if (dtype == sim::DType::int32) {
    // Token ids are spread over the vocabulary. The new tokens have the last positions.
    const sim::Variables& v = single.bound_variables();
    const std::int64_t vocab = single.operation().dims.vocab;
    std::vector<std::int32_t> values(bytes / sizeof(std::int32_t));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int32_t>(vocab > 0 ? static_cast<std::int64_t>(i) * 7919 % vocab
                                                      : v.kv_length - v.query_length);
    device_.copy_to_device(operand.data, std::as_bytes(std::span(values)));
  } else if (dtype == sim::DType::fp64) {
    const std::array<double, 3> norm{1, 1, 1};
    device_.copy_to_device(operand.data, std::as_bytes(std::span(norm)));
  } else {
    fill_with_template(operand.data, bytes, dtype);
  }
}

void Stopwatch::fill_with_template(std::byte* to, std::size_t bytes, sim::DType dtype) {
  const std::vector<std::byte>& from = dtype == sim::DType::bf16   ? bf16_template_
                                       : dtype == sim::DType::fp16 ? f16_template_
                                       : dtype == sim::DType::fp8  ? fp8_template_
                                                                   : template_;
  for (std::size_t done = 0; done < bytes; done += from.size())
    device_.copy_to_device(to + done, std::span(from).first(std::min(from.size(), bytes - done)));
}

}  // namespace runtime
