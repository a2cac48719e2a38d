#include "runtime/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/threads.h"
#include "runtime/arena.h"
#include "runtime/device.h"
#include "runtime/formats/float_formats.h"
#include "runtime/initial_values.h"
#include "runtime/measured.h"
#include "runtime/run.h"
#include "runtime/this_machine.h"
#include "sim/cost/work.h"
#include "sim/plan/memory.h"

namespace runtime {
namespace {

using sim::Access;
using sim::Extent;
using sim::OpKind;

using Clock = std::chrono::steady_clock;

// Operands of an operation rotate through memory, as a model's layers do, and small and large models differ
// in which cache they still find their weights in. So each operation is timed over two working sets: one that
// stays in the last-level cache of most machines, and one that no cache holds.
constexpr sim::Bytes kCachedRotation{64 << 20};
constexpr std::size_t kMostCopies = 16;

// Products with more arithmetic a byte than this take their time wherever the operands come from.
constexpr double kComputeBoundIntensity = 64;

// How long one sample may take, warm-up not counted.
constexpr double kSampleSeconds = 0.03;
constexpr std::size_t kFewestRepetitions = 3, kMostRepetitions = 30;

bool forms_products(OpKind kind) {
  switch (kind) {
    case OpKind::matmul:
    case OpKind::matmul_backward_input:
    case OpKind::matmul_backward_weight:
    case OpKind::attention_flash:
    case OpKind::attention_flash_backward:
    case OpKind::attention_standard:
    case OpKind::attention_standard_backward:
    case OpKind::attention_cached:
      return true;
    default:
      return false;
  }
}

// An operation with operands of its own, as a plan of that operation alone.
class SingleOperation {
 public:
  explicit SingleOperation(OpKind kind) { operation_.kind = kind; }

  SingleOperation& variables(std::int64_t batch, std::int64_t query_length, std::int64_t kv_length) {
    variables_ = {.batch = batch, .query_length = query_length, .kv_length = kv_length};
    return *this;
  }
  SingleOperation& dims(sim::Dims dims) {
    operation_.dims = dims;
    return *this;
  }
  // Of the type that the operation's tensors are stored in, or of one that is always the same.
  SingleOperation& add(Access access, std::vector<Extent> shape, std::optional<sim::DType> dtype = {}) {
    if (!dtype) stored_.push_back(plan_.buffers.size());
    operation_.operands.push_back({static_cast<sim::BufferId>(plan_.buffers.size()), access, 0});
    plan_.buffers.push_back({.name = "operand " + std::to_string(plan_.buffers.size()),
                             .dtype = dtype.value_or(sim::DType::fp32),
                             .shape = std::move(shape)});
    return *this;
  }
  SingleOperation& add_f32(Access access, std::vector<Extent> shape) {
    return add(access, std::move(shape), sim::DType::fp32);
  }
  // With tensors stored in that type, in which matrix products and attention compute too.
  SingleOperation& in(sim::DType stored) {
    for (const std::size_t buffer : stored_) plan_.buffers[buffer].dtype = stored;
    if (forms_products(operation_.kind)) operation_.dtype = stored;
    return *this;
  }
  SingleOperation& absent() {
    operation_.operands.push_back({});
    return *this;
  }

  const sim::Operation& operation() const { return operation_; }
  const sim::Variables& bound_variables() const { return variables_; }
  const sim::Plan& plan() const { return plan_; }
  const sim::Buffer& buffer(sim::BufferId id) const { return plan_.buffers[static_cast<std::size_t>(id)]; }

  // The mini-plan's work, as work_of prices it in any plan.
  sim::Work work() const { return sim::work_of(plan_, operation_, variables_); }

 private:
  sim::Plan plan_;
  sim::Operation operation_{.id = "calibration", .dtype = sim::DType::fp32, .scalar = 1e-5f};
  sim::Variables variables_;
  std::vector<std::size_t> stored_;
};

sim::Bytes operands_size(const SingleOperation& single) {
  sim::Bytes size;
  for (const sim::Operand& operand : single.operation().operands)
    if (operand.buffer != sim::kNoBuffer)
      size += sim::aligned(single.buffer(operand.buffer).bytes(single.bound_variables()));
  return size;
}

struct Timing {
  double median = 0, spread = 0;
};

// Times operations one after the other in memory of its own.
class Stopwatch {
 public:
  // `rotation`: what operands go through that are to be found in a cache. `stored`: of most operands.
  Stopwatch(Device& device, sim::Bytes memory, sim::Bytes rotation, sim::DType stored)
      : device_(device), arena_(device, memory), rotation_(rotation), stored_(stored) {
    std::vector<float> values(kTemplate / sizeof(float));
    draw_parameter({}, 1, "calibration", 0, values);
    for (float& value : values) value = std::abs(value);  // of second moments the root is taken
    const auto bytes = std::as_bytes(std::span(values));
    template_.assign(bytes.begin(), bytes.end());
    std::vector<std::uint16_t> narrow(values.size());
    std::transform(values.begin(), values.end(), narrow.begin(), f32_to_bf16);
    const auto narrow_bytes = std::as_bytes(std::span(narrow));
    narrow_template_.assign(narrow_bytes.begin(), narrow_bytes.end());
    fill_with_template(arena_.at({}), static_cast<std::size_t>(memory.value), stored);
  }

  // What time_uncached() goes through before it comes back to the same operands.
  sim::Bytes working_set() const { return arena_.size(); }

  // Operands rotate through kCachedRotation; each copy has been used before it is timed.
  Timing time_cached(const SingleOperation& single) {
    bind(single, {}, rotation_, kMostCopies, true);
    double warm_up = 0;
    for (std::size_t turn = 0; turn < bound_.size() && warm_up < kSampleSeconds; ++turn)
      warm_up += run_once(turn);
    return repeat(kMostRepetitions, 0);
  }

  // Each run has operands that were last touched when the whole arena was gone through since.
  Timing time_uncached(const SingleOperation& single) {
    if (cursor_ + operands_size(single) * static_cast<std::int64_t>(kFewestRepetitions + 1) > arena_.size())
      cursor_ = {};
    bind(single, cursor_, arena_.size() - cursor_, kMostRepetitions + 1, false);
    run_once(0);  // wakes the threads and warms the code
    const Timing timing = repeat(std::min(kMostRepetitions, bound_.size() - 1), 1);
    cursor_ += operands_size(single) * static_cast<std::int64_t>(bound_.size());
    return timing;
  }

 private:
  static constexpr std::size_t kTemplate = 4 << 20;  // bytes of random numbers, repeated

  double run_once(std::size_t turn) {
    RunSettings settings;
    settings.adamw = {
        .learning_rate = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .step = 1};
    std::array<double, 2> stamps{};
    device_.begin(settings);
    device_.record(0);
    device_.run(bound_[turn % bound_.size()], settings);
    device_.record(1);
    device_.synchronise();
    device_.stamps(stamps);
    return stamps[1];
  }

  // Runs from turn `first` on, until kSampleSeconds or `most` of them are over.
  Timing repeat(std::size_t most, std::size_t first) {
    std::vector<double> samples;
    double sum = 0;
    while (samples.size() < std::min(most, kFewestRepetitions) ||
           (samples.size() < most && sum < kSampleSeconds)) {
      samples.push_back(run_once(first + samples.size()));
      sum += samples.back();
    }
    const double median = percentile(samples, 0.5);
    return {median, (percentile(samples, 0.9) - percentile(samples, 0.1)) / median};
  }

  // Copies of the operands from `offset` on, as many as fit into `room` but at most `most`. Filling them
  // brings them into the caches; unfilled, they hold what the constructor or an earlier operation left.
  void bind(const SingleOperation& single, sim::Bytes offset, sim::Bytes room, std::size_t most,
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
        offset += sim::aligned(bytes);
      }
      bound_.push_back({&single.operation(), single.bound_variables(), std::span(operands_).subspan(first)});
    }
  }

  void fill(const SingleOperation& single, sim::DType dtype, const BoundOperand& operand) {
    const auto bytes = static_cast<std::size_t>(operand.bytes);
    if (dtype == sim::DType::int32) {
      // Token ids spread over the vocabulary; positions: the new tokens come last.
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

  void fill_with_template(std::byte* to, std::size_t bytes, sim::DType dtype) {
    const std::vector<std::byte>& from = dtype == sim::DType::bf16 ? narrow_template_ : template_;
    for (std::size_t done = 0; done < bytes; done += from.size())
      device_.copy_to_device(to + done, std::span(from).first(std::min(from.size(), bytes - done)));
  }

  Device& device_;
  Arena arena_;
  sim::Bytes rotation_;
  sim::DType stored_;
  sim::Bytes cursor_;  // where time_uncached() goes on
  std::vector<std::byte> template_, narrow_template_;
  std::vector<BoundOperand> operands_;
  std::vector<BoundOperation> bound_;
};

SingleOperation product(OpKind kind, std::int64_t M, std::int64_t N, std::int64_t K) {
  SingleOperation single(kind);
  single.variables(1, M, M).dims({.rows = M, .cols = N, .inner = K});
  switch (kind) {
    case OpKind::matmul:
      return single.add(Access::write, {M, N})
          .add(Access::read, {M, K})
          .add(Access::read, {N, K})
          .absent()
          .absent();
    case OpKind::matmul_backward_input:
      return single.add(Access::write, {M, K}).add(Access::read, {M, N}).add(Access::read, {N, K});
    default:
      return single.add(Access::update, {N, K}).absent().add(Access::read, {M, N}).add(Access::read, {M, K});
  }
}

SingleOperation norm(OpKind kind, std::int64_t R, std::int64_t C) {
  SingleOperation single(kind);
  single.variables(1, R, R).dims({.rows = R, .hidden = C});
  const bool layernorm = kind == OpKind::layernorm || kind == OpKind::layernorm_backward;
  if (kind == OpKind::layernorm || kind == OpKind::rmsnorm) {
    single.add(Access::write, {R, C});
    if (layernorm) single.add_f32(Access::write, {R});
    single.add_f32(Access::write, {R}).add(Access::read, {R, C}).add(Access::read, {C});
    if (layernorm) single.add(Access::read, {C});
    return single;
  }
  single.add(Access::update, {R, C}).add(Access::update, {C});
  if (layernorm) single.add(Access::update, {C});
  single.add(Access::read, {R, C}).add(Access::read, {R, C}).add(Access::read, {C});
  if (layernorm) single.add_f32(Access::read, {R});
  return single.add_f32(Access::read, {R});
}

SingleOperation elementwise(OpKind kind, std::int64_t R, std::int64_t F) {
  SingleOperation single(kind);
  single.variables(1, R, R).dims({.rows = R, .cols = F});
  switch (kind) {
    case OpKind::gelu:
      return single.add(Access::write, {R, F}).add(Access::read, {R, F});
    case OpKind::gelu_backward:
    case OpKind::add:
      return single.add(Access::write, {R, F}).add(Access::read, {R, F}).add(Access::read, {R, F});
    case OpKind::swiglu:
      return single.add(Access::write, {R, F}).add(Access::read, {R, 2 * F});
    default:  // swiglu_backward
      return single.add(Access::write, {R, 2 * F}).add(Access::read, {R, F}).add(Access::read, {R, 2 * F});
  }
}

struct Heads {
  std::int64_t heads, kv_heads, head_dim;
  std::int64_t query() const { return heads * head_dim; }
  std::int64_t packed() const { return (heads + 2 * kv_heads) * head_dim; }
};

SingleOperation attention(OpKind kind, std::int64_t B, std::int64_t T, Heads h) {
  SingleOperation single(kind);
  single.variables(B, T, T).dims({.heads = h.heads, .kv_heads = h.kv_heads, .head_dim = h.head_dim});
  const std::int64_t R = B * T;
  switch (kind) {
    case OpKind::attention_flash:
      return single.add(Access::write, {R, h.query()})
          .add_f32(Access::write, {B, h.heads, T})
          .add(Access::read, {R, h.packed()});
    case OpKind::attention_flash_backward:
      return single.add(Access::write, {R, h.packed()})
          .add(Access::read, {R, h.query()})
          .add(Access::read, {R, h.packed()})
          .add(Access::read, {R, h.query()})
          .add_f32(Access::read, {B, h.heads, T});
    case OpKind::attention_standard:
      return single.add(Access::write, {R, h.query()})
          .add(Access::write, {B, h.heads, T, T})
          .add(Access::read, {R, h.packed()})
          .absent()
          .absent();
    case OpKind::attention_standard_backward:
      return single.add(Access::write, {R, h.packed()})
          .add(Access::write, {B, h.heads, T, T})
          .add(Access::read, {R, h.query()})
          .add(Access::read, {R, h.packed()})
          .add(Access::read, {B, h.heads, T, T})
          .absent()
          .absent();
    case OpKind::rope:
      return single.add(Access::update, {R, h.packed()}).add_f32(Access::read, {T, h.head_dim}).absent();
    default:  // rope_backward
      return single.add(Access::update, {R, h.packed()}).add_f32(Access::read, {T, h.head_dim});
  }
}

SingleOperation cached(OpKind kind, std::int64_t B, std::int64_t T, std::int64_t length, Heads h) {
  SingleOperation single(kind);
  single.variables(B, T, length).dims({.heads = h.heads, .kv_heads = h.kv_heads, .head_dim = h.head_dim});
  const std::vector<Extent> qkv{B * T, h.packed()}, cache{B, h.kv_heads, length, h.head_dim};
  if (kind == OpKind::kv_append)
    single.add(Access::update, cache).add(Access::update, cache).add(Access::read, qkv);
  else
    single.add(Access::write, {B * T, h.query()})
        .add(Access::read, qkv)
        .add(Access::read, cache)
        .add(Access::read, cache);
  return single.add(Access::read, {B}, sim::DType::int32);
}

SingleOperation embedding(OpKind kind, std::int64_t R, std::int64_t C, std::int64_t V) {
  SingleOperation single(kind);
  single.variables(1, R, R).dims({.rows = R, .hidden = C, .vocab = V});
  if (kind == OpKind::embedding)
    return single.add(Access::write, {R, C})
        .add(Access::read, {R}, sim::DType::int32)
        .add(Access::read, {V, C})
        .absent()
        .absent();
  return single.add(Access::update, {V, C})
      .absent()
      .add(Access::read, {R, C})
      .add(Access::read, {R}, sim::DType::int32);
}

SingleOperation head(OpKind kind, std::int64_t R, std::int64_t V) {
  SingleOperation single(kind);
  single.dims({.rows = R, .vocab = V});
  if (kind == OpKind::sample)
    return single.variables(R, 1, 1).add(Access::write, {R}, sim::DType::int32).add_f32(Access::read, {R, V});
  return single.variables(1, R, R)
      .add(Access::update, {R, V})
      .add_f32(Access::write, {R})
      .add(Access::read, {R}, sim::DType::int32);
}

// Operations of the optimizer on one tensor of `count` elements.
SingleOperation optimizer(OpKind kind, std::int64_t count) {
  SingleOperation single(kind);
  const std::vector<Extent> shape{count};
  switch (kind) {
    case OpKind::zero:
      return single.add(Access::write, shape);
    case OpKind::squared_norm:
      return single.add(Access::update, {3}, sim::DType::fp64).add(Access::read, shape);
    case OpKind::clip_scale:
      return single.add(Access::update, {3}, sim::DType::fp64);
    default:  // adamw
      return single.add(Access::read, {3}, sim::DType::fp64)
          .add(Access::update, shape)
          .add(Access::read, shape)
          .add_f32(Access::update, shape)
          .add_f32(Access::update, shape)
          .absent();
  }
}

// AdamW where parameters are stored in fewer bits: the fp32 copy is updated.
SingleOperation adamw_with_master(std::int64_t count) {
  const std::vector<Extent> shape{count};
  return SingleOperation(OpKind::adamw)
      .add(Access::read, {3}, sim::DType::fp64)
      .add(Access::write, shape)
      .add(Access::read, shape)
      .add_f32(Access::update, shape)
      .add_f32(Access::update, shape)
      .add_f32(Access::update, shape);
}

std::vector<SingleOperation> operations_to_time() {
  std::vector<SingleOperation> all;
  constexpr std::pair<std::int64_t, std::int64_t> kWeights[] = {
      // (N, K)
      {256, 256},  {1024, 256}, {256, 1024},  {768, 768},  {2304, 768},
      {3072, 768}, {768, 3072}, {2048, 2048}, {8192, 256}, {32768, 768}};
  constexpr double kMostFlops = 3e10;
  for (const OpKind kind : {OpKind::matmul, OpKind::matmul_backward_input, OpKind::matmul_backward_weight})
    for (const std::int64_t M : {1, 8, 64, 256, 1024, 4096}) {
      if (kind != OpKind::matmul && M < 64) continue;  // training has more rows than that
      for (const auto& [N, K] : kWeights)
        if (2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K) <= kMostFlops)
          all.push_back(product(kind, M, N, K));
    }
  for (const OpKind kind :
       {OpKind::layernorm, OpKind::layernorm_backward, OpKind::rmsnorm, OpKind::rmsnorm_backward})
    for (const std::int64_t R : {1, 64, 1024, 8192})
      for (const std::int64_t C : {256, 768, 2048}) all.push_back(norm(kind, R, C));
  for (const OpKind kind :
       {OpKind::gelu, OpKind::gelu_backward, OpKind::swiglu, OpKind::swiglu_backward, OpKind::add})
    for (const std::int64_t R : {1, 64, 1024, 4096})
      for (const std::int64_t F : {256, 1024, 3072}) all.push_back(elementwise(kind, R, F));
  constexpr Heads kHeads[] = {{4, 4, 32}, {9, 3, 64}, {12, 12, 64}};
  for (const Heads& h : kHeads) {
    for (const OpKind kind : {OpKind::attention_flash, OpKind::attention_flash_backward,
                              OpKind::attention_standard, OpKind::attention_standard_backward})
      for (const std::int64_t T : {64, 256, 1024}) all.push_back(attention(kind, T < 1024 ? 4 : 1, T, h));
    for (const OpKind kind : {OpKind::rope, OpKind::rope_backward})
      for (const std::int64_t T : {1, 64, 1024}) all.push_back(attention(kind, 1, T, h));
    for (const std::int64_t length : {64, 256, 1024}) {
      all.push_back(cached(OpKind::kv_append, 1, 1, length, h));
      all.push_back(cached(OpKind::attention_cached, 1, 1, length, h));
      all.push_back(cached(OpKind::kv_append, 1, length, length, h));
      all.push_back(cached(OpKind::attention_cached, 1, length, length, h));
    }
  }
  for (const OpKind kind : {OpKind::embedding, OpKind::embedding_backward})
    for (const std::int64_t R : {1, 1024, 4096})
      for (const std::int64_t C : {256, 768}) all.push_back(embedding(kind, R, C, 32768));
  for (const std::int64_t V : {256, 8192, 50257}) {
    for (const std::int64_t R : {64, 1024}) all.push_back(head(OpKind::cross_entropy, R, V));
    all.push_back(head(OpKind::sample, 1, V));
  }
  for (const std::int64_t C : {256, 768}) {
    SingleOperation last(OpKind::gather_last);
    all.push_back(last.variables(1, 64, 64)
                      .dims({.rows = 64, .cols = C})
                      .add(Access::write, {1, C})
                      .add(Access::read, {64, C}));
  }
  for (const OpKind kind : {OpKind::zero, OpKind::squared_norm, OpKind::adamw})
    for (const std::int64_t count :
         {std::int64_t{1} << 10, std::int64_t{1} << 16, std::int64_t{1} << 20, std::int64_t{1} << 24})
      all.push_back(optimizer(kind, count));
  all.push_back(optimizer(OpKind::clip_scale, 0));
  return all;
}

// Memory that no cache holds, as far as this machine has it to spare.
sim::Bytes uncached_size(std::int64_t last_level_cache) {
  constexpr std::int64_t kLeast = 256 << 20, kMost = std::int64_t{2} << 30;
  return {
      std::min(std::clamp<std::int64_t>(2 * last_level_cache, kLeast, kMost), physical_memory().value / 8)};
}

// The kinds that only stream, on operands that no cache holds: the fastest tells memory's bandwidth.
std::vector<SingleOperation> streaming_operations(sim::Bytes size) {
  const std::int64_t floats = size.value / static_cast<std::int64_t>(sizeof(float));
  return {elementwise(OpKind::add, floats / 3 / 1024 - 1, 1024), optimizer(OpKind::adamw, floats / 4 - 1024)};
}

// One whose work is negligible and that still wakes the threads: what is left is the fixed cost of an
// operation.
SingleOperation launch_operation() {
  return elementwise(OpKind::gelu, 64, 256);
}

std::int64_t last_level_cache() {
  const long level_3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::max<long>(level_3 > 0 ? level_3 : sysconf(_SC_LEVEL2_CACHE_SIZE), 0);
}

// Times the operations into calibration.samples. Returns the best rate of arithmetic seen, in FLOP/s.
double time_operations(const std::vector<SingleOperation>& operations, Stopwatch& stopwatch,
                       sim::Bytes memory, sim::Bytes rotation, const std::string& what, const EventSink& sink,
                       const std::stop_token& stop, sim::Calibration& calibration) {
  const Clock::time_point begin = Clock::now();
  double peak = 0;
  std::size_t done = 0;
  for (const SingleOperation& single : operations) {
    if (stop.stop_requested()) break;
    const sim::Work work = single.work();
    const auto keep = [&](const Timing& timing, sim::Bytes working_set) {
      sim::KernelSample sample =
          sim::kernel_shape(single.operation(), single.bound_variables(), work, working_set);
      sample.median = {timing.median};
      sample.spread = timing.spread;
      peak = std::max(peak, sample.flops.value / timing.median);
      calibration.samples.push_back(sample);
    };
    // Where one run alone goes through more than caches hold, there is no other working set to time.
    const bool both = work.flops / work.memory() < kComputeBoundIntensity &&
                      operands_size(single) * static_cast<std::int64_t>(kFewestRepetitions + 1) <= memory;
    keep(stopwatch.time_cached(single), both ? rotation : sim::Bytes{});
    if (both) keep(stopwatch.time_uncached(single), stopwatch.working_set());
    ++done;
    if (sink) {
      const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
      const double rate = elapsed / static_cast<double>(done);
      sink(sim::ProgressEvent{what,
                              static_cast<std::int64_t>(done),
                              static_cast<std::int64_t>(operations.size()),
                              {rate * static_cast<double>(operations.size() - done)}});
    }
  }
  return peak;
}

sim::Bytes largest_operands(const std::vector<SingleOperation>& operations) {
  sim::Bytes largest;
  for (const SingleOperation& single : operations) largest = std::max(largest, operands_size(single));
  return largest;
}

// What plans of 124M to 8B parameters ask of a GPU, in bf16.
std::vector<SingleOperation> gpu_operations_to_time() {
  std::vector<SingleOperation> all;
  constexpr std::pair<std::int64_t, std::int64_t> kWeights[] = {
      // (N, K): GPT-2 124M and 1.5B, Llama 1B and 8B, their heads
      {2304, 768},   {3072, 768},   {768, 3072},   {4800, 1600},   {6400, 1600},  {1600, 6400},
      {3072, 2048},  {16384, 2048}, {2048, 8192},  {6144, 4096},   {4096, 4096},  {28672, 4096},
      {4096, 14336}, {50304, 768},  {50304, 1600}, {128256, 2048}, {128256, 4096}};
  for (const OpKind kind : {OpKind::matmul, OpKind::matmul_backward_input, OpKind::matmul_backward_weight})
    for (const std::int64_t M : {1, 8, 64, 1024, 4096, 16384}) {
      if (kind != OpKind::matmul && M < 1024) continue;
      for (const auto& [N, K] : kWeights) all.push_back(product(kind, M, N, K));
    }
  for (const OpKind kind :
       {OpKind::layernorm, OpKind::layernorm_backward, OpKind::rmsnorm, OpKind::rmsnorm_backward})
    for (const std::int64_t R : {1, 64, 4096, 16384})
      for (const std::int64_t C : {768, 1600, 2048, 4096}) all.push_back(norm(kind, R, C));
  for (const OpKind kind :
       {OpKind::gelu, OpKind::gelu_backward, OpKind::swiglu, OpKind::swiglu_backward, OpKind::add})
    for (const std::int64_t R : {1, 64, 4096, 16384})
      for (const std::int64_t F : {3072, 8192, 14336}) all.push_back(elementwise(kind, R, F));
  constexpr Heads kHeads[] = {{12, 12, 64}, {25, 25, 64}, {32, 8, 64}, {32, 8, 128}};
  for (const Heads& h : kHeads) {
    for (const OpKind kind : {OpKind::attention_flash, OpKind::attention_flash_backward}) {
      constexpr std::int64_t kTokens = 16384;
      for (const std::int64_t T : {1024, 2048, 4096, 16384})
        all.push_back(attention(kind, kTokens / T, T, h));
    }
    for (const OpKind kind : {OpKind::attention_standard, OpKind::attention_standard_backward})
      for (const std::int64_t T : {1024, 2048}) all.push_back(attention(kind, 4096 / T, T, h));
    for (const OpKind kind : {OpKind::rope, OpKind::rope_backward})
      for (const std::int64_t T : {1, 1024, 16384}) all.push_back(attention(kind, 1, T, h));
    for (const std::int64_t batch : {1, 8, 64})
      for (const std::int64_t length : {256, 1024, 4096, 16384}) {
        all.push_back(cached(OpKind::kv_append, batch, 1, length, h));
        all.push_back(cached(OpKind::attention_cached, batch, 1, length, h));
      }
    for (const std::int64_t length : {256, 1024, 4096})
      all.push_back(cached(OpKind::attention_cached, 1, length, length, h));
  }
  for (const OpKind kind : {OpKind::embedding, OpKind::embedding_backward})
    for (const std::int64_t R : {1, 4096, 16384})
      for (const std::int64_t C : {768, 4096}) all.push_back(embedding(kind, R, C, 50304));
  for (const std::int64_t V : {50304, 128256}) {
    for (const std::int64_t R : {1024, 8192}) all.push_back(head(OpKind::cross_entropy, R, V));
    for (const std::int64_t R : {1, 64}) all.push_back(head(OpKind::sample, R, V));
  }
  for (const std::int64_t count : {1 << 12, 1 << 20, 1 << 24, 1 << 28}) {
    for (const OpKind kind : {OpKind::zero, OpKind::squared_norm}) all.push_back(optimizer(kind, count));
    all.push_back(adamw_with_master(count));
  }
  all.push_back(optimizer(OpKind::clip_scale, 0));
  for (SingleOperation& single : all) single.in(sim::DType::bf16);
  return all;
}

}  // namespace

std::string kernels_version() {
  return software_version() + ", cpu kernels fp32";
}

std::string gpu_kernels_version() {
  return software_version() + ", cuda kernels bf16";
}

sim::Calibration calibrate_cpu(const EventSink& sink, const std::stop_token& stop, int threads) {
  const std::unique_ptr<Device> device = make_cpu_device(threads);
  const std::vector<SingleOperation> operations = operations_to_time();

  sim::Calibration calibration;
  calibration.device = device->name();
  calibration.date = utc_now();
  calibration.software = kernels_version();

  sim::Hardware& hardware = calibration.hardware;
  hardware.name = "this-machine";
  hardware.display_name = device->name();
  hardware.memory = physical_memory();
  hardware.last_level_cache = {last_level_cache()};
  hardware.multiprocessors = kernels::cpu::threads();
  hardware.source = "measured " + calibration.date;

  const sim::Bytes memory =
      std::max(uncached_size(hardware.last_level_cache.value), largest_operands(operations));
  Stopwatch stopwatch(*device, memory, kCachedRotation, sim::DType::fp32);
  for (const SingleOperation& single : streaming_operations(memory))
    hardware.memory_bandwidth =
        std::max(hardware.memory_bandwidth,
                 single.work().memory() / sim::Seconds{stopwatch.time_cached(single).median});
  calibration.launch = hardware.launch = {stopwatch.time_cached(launch_operation()).median};
  const double peak = time_operations(operations, stopwatch, memory, kCachedRotation,
                                      "measuring this machine", sink, stop, calibration);
  hardware.peak[sim::DType::fp32] = {peak};
  sim::set_residuals(calibration);
  return calibration;
}

sim::Calibration calibrate_gpu(const DeviceChoice& choice, const sim::Hardware& hardware,
                               const EventSink& sink, const std::stop_token& stop) {
  const std::unique_ptr<Device> device = open_device(choice);
  const std::vector<SingleOperation> operations = gpu_operations_to_time();

  sim::Calibration calibration;
  calibration.device = device->name();
  calibration.date = utc_now();
  calibration.software = gpu_kernels_version();
  calibration.hardware = hardware;

  // Half of the last cache stays in it beside what else a step touches; four of them no cache holds.
  const sim::Bytes rotation{hardware.last_level_cache.value / 2};
  const sim::Bytes memory =
      std::max(sim::Bytes{4 * hardware.last_level_cache.value + (std::int64_t{1} << 30)},
               largest_operands(operations));
  Stopwatch stopwatch(*device, memory, rotation, sim::DType::bf16);
  calibration.launch = {stopwatch.time_cached(launch_operation().in(sim::DType::bf16)).median};
  time_operations(operations, stopwatch, memory, rotation, "measuring " + device->name(), sink, stop,
                  calibration);
  sim::set_residuals(calibration);
  return calibration;
}

}  // namespace runtime
