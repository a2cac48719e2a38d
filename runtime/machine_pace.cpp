#include "runtime/machine_pace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/this_machine.h"
#include "sim/quantile.h"

namespace runtime {
namespace {

constexpr SampleLength kLength{.seconds = 0.006, .most = 12};
constexpr sim::Bytes kOfArithmetic{32 << 20};  // two copies of the product's operands

// The sample of exactly this operation that went through most memory; any of them, where memory makes no
// difference.
std::optional<std::size_t> uncached_sample(const std::vector<sim::KernelSample>& samples,
                                           const SingleOperation& single) {
  std::optional<std::size_t> found;
  for (const std::size_t i : samples_of(single, samples))
    if (!found || samples[*found].working_set < samples[i].working_set) found = i;
  return found;
}

}  // namespace

SingleOperation probe_of_arithmetic() {
  return product(sim::OpKind::matmul, 256, 3072, 768);
}

std::array<SingleOperation, kStreams> streams() {
  return {product(sim::OpKind::matmul, 1, 16384, 256), optimizer(sim::OpKind::adamw, std::int64_t{1} << 20)};
}

sim::Slowdown times_as_long(const Pace& now, const Pace& then) {
  double product = 1;
  for (std::size_t i = 0; i < kStreams; ++i) product *= now.streams[i] / then.streams[i];
  return {.arithmetic = now.arithmetic / then.arithmetic, .memory = std::pow(product, 1.0 / kStreams)};
}

Pace between(const Pace& a, const Pace& b) {
  Pace mean{.arithmetic = std::sqrt(a.arithmetic * b.arithmetic)};
  for (std::size_t i = 0; i < kStreams; ++i) mean.streams[i] = std::sqrt(a.streams[i] * b.streams[i]);
  return mean;
}

Pace median(const std::vector<Pace>& paces) {
  const auto over_looks = [&](const auto& part) {
    std::vector<double> seconds;
    for (const Pace& pace : paces) seconds.push_back(part(pace));
    return sim::quantile(std::move(seconds), 0.5);
  };
  Pace all{.arithmetic = over_looks([](const Pace& pace) { return pace.arithmetic; })};
  for (std::size_t i = 0; i < kStreams; ++i)
    all.streams[i] = over_looks([&](const Pace& pace) { return pace.streams[i]; });
  return all;
}

sim::Bytes uncached_size(sim::Bytes last_level_cache) {
  constexpr std::int64_t kLeast = 256 << 20, kMost = std::int64_t{2} << 30;
  return {std::min(std::clamp<std::int64_t>(2 * last_level_cache.value, kLeast, kMost),
                   physical_memory().value / 8)};
}

ArithmeticPace::ArithmeticPace(Device& device)
    : stopwatch_(device, kOfArithmetic, kOfArithmetic, sim::DType::fp32, kLength) {}

double ArithmeticPace::look() {
  return stopwatch_.time_cached(arithmetic_).mean;
}

MachinePace::MachinePace(Device& device, sim::Bytes last_level_cache)
    : stopwatch_(device, uncached_size(last_level_cache), kCachedRotation, sim::DType::fp32, kLength) {}

Pace MachinePace::look(double Timing::*of_runs) {
  Pace pace{.arithmetic = stopwatch_.time_cached(arithmetic_).*of_runs};
  for (std::size_t i = 0; i < kStreams; ++i) pace.streams[i] = stopwatch_.time_uncached(streams_[i]).*of_runs;
  return pace;
}

Pace set_to_one_pace(sim::Calibration& calibration, const std::vector<Pace>& paces) {
  const Pace usual = median(paces);
  const sim::Hardware& hardware = calibration.hardware;
  std::vector<sim::KernelSample>& samples = calibration.samples;
  for (std::size_t i = 0; i < paces.size(); ++i) {
    const sim::Roofline fast = sim::roofline(hardware, calibration.launch, samples[i]);
    const double from_memory = sim::share_from_memory(calibration, samples[i].working_set);
    samples[i].median = samples[i].median *
                        (fast.time() / sim::slowed(fast, times_as_long(paces[i], usual), from_memory).time());
  }
  return usual;
}

void tell_pace_by(const Pace& usual, sim::Calibration& calibration) {
  std::vector<sim::KernelSample>& samples = calibration.samples;
  for (const std::size_t i : samples_of(probe_of_arithmetic(), samples))
    samples[i].median = {usual.arithmetic};
  const auto all = streams();
  for (std::size_t i = 0; i < kStreams; ++i)
    if (const auto sample = uncached_sample(samples, all[i])) samples[*sample].median = {usual.streams[i]};
}

std::optional<Pace> calibrated_pace(const sim::Calibration& calibration) {
  const auto seconds = [&](const SingleOperation& single) -> std::optional<double> {
    const auto sample = uncached_sample(calibration.samples, single);
    if (!sample) return std::nullopt;
    return calibration.samples[*sample].median.value;
  };
  Pace pace;
  const auto arithmetic = seconds(probe_of_arithmetic());
  if (!arithmetic) return std::nullopt;
  pace.arithmetic = *arithmetic;
  const auto all = streams();
  for (std::size_t i = 0; i < kStreams; ++i) {
    const auto stream = seconds(all[i]);
    if (!stream) return std::nullopt;
    pace.streams[i] = *stream;
  }
  return pace;
}

}  // namespace runtime
