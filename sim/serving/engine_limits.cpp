#include "sim/serving/engine_limits.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sim/plan/memory.h"

namespace sim {
namespace {

double d(std::int64_t n) {
  return static_cast<double>(n);
}

std::int64_t rounded_up(double value, std::int64_t to) {
  return static_cast<std::int64_t>(std::ceil(value / d(to))) * to;
}

struct BenchmarkLimits {
  std::int64_t sequences = 0, tokens = 0;
};

BenchmarkLimits benchmark_limits(const Scenario& s, double cache_of_token) {
  const ServingImplementation& serving = *s.implementation.serving;
  const Workload& w = s.workload;
  const double gpus = s.strategy.tensor_parallel * s.strategy.pipeline_parallel;
  // The engine's own estimate counts all parameters as quantized, and no activations. Ranks that divide only
  // experts have sequences of their own.
  const DType stored = stored_experts(w).value_or(w.dtype);
  const double parameters =
      d(count_parameters(s.model).total) * d(bits(stored)) / 8 / s.strategy.expert_parallel;
  const double tokens = serving.cache_share * (d(s.hardware.memory.value) * gpus - parameters) /
                        (cache_of_token * s.strategy.tensor_parallel * s.strategy.pipeline_parallel);
  constexpr double kMostRequests = 4096, kMostTokens = 32768;
  const double requests = tokens / d(w.prompt_length + w.max_new_tokens);
  const double raw = std::min(requests, kMostRequests) / s.strategy.pipeline_parallel;
  BenchmarkLimits limits;
  limits.sequences = raw < 256    ? std::max<std::int64_t>(64, rounded_up(raw, 32))
                     : raw < 1024 ? rounded_up(raw, 128)
                                  : rounded_up(raw, 256);
  const double step = std::min(raw * (1 + d(w.prompt_length) / d(w.max_new_tokens)), kMostTokens);
  limits.tokens = step < 4096   ? std::max<std::int64_t>(2048, rounded_up(step, 256))
                  : step < 8192 ? rounded_up(step, 512)
                                : rounded_up(step, 1024);
  limits.tokens = std::max(limits.tokens, w.prompt_length + limits.sequences);
  return limits;
}

// For each buffer, whether an operation other than the lookup of tokens uses it.
std::vector<bool> used_beside_lookup(const Plan& plan) {
  std::vector<bool> used(plan.buffers.size());
  for (const Block& block : plan.blocks)
    for (const Operation& op : block.operations)
      for (const Operand& o : op.operands)
        if (op.kind != OpKind::embedding && o.buffer != kNoBuffer)
          used[static_cast<std::size_t>(o.buffer)] = true;
  return used;
}

}  // namespace

EngineMemory engine_memory(const Scenario& scenario) {
  if (!scenario.implementation.serving)
    throw std::invalid_argument("implementation \"" + scenario.implementation.name +
                                "\" has no serving profile: it says nothing of generation");
  const ServingImplementation& serving = *scenario.implementation.serving;
  Scenario one = scenario;
  const int stages = scenario.strategy.pipeline_parallel;
  one.strategy.pipeline_parallel = 1;
  if (one.strategy.expert_parallel == 1) one.strategy.data_parallel = 1;
  // A request has the workload's length. Caches of layers with a window do not grow beyond the window.
  const std::int64_t length =
      std::max<std::int64_t>(2, scenario.workload.prompt_length + scenario.workload.max_new_tokens);
  one.workload.batch_size = one.workload.max_new_tokens = 1;
  one.workload.prompt_length = length - 1;
  const Plan plan = make_plan(one);
  double weights = 0, streamed = 0, cache = 0;
  const std::vector<bool> used = used_beside_lookup(plan);
  for (const Instance& instance : plan_memory(plan, 0, Addresses::none).instances) {
    const Buffer& buffer = plan.buffer(instance.buffer);
    if (buffer.view_of != kNoBuffer) continue;
    const double bytes = d(instance.bytes.value) / (buffer.per_layer ? stages : 1);
    if (buffer.buffer_class == BufferClass::kv_cache) cache += bytes;
    if (buffer.buffer_class != BufferClass::parameter) continue;
    weights += bytes;
    if (used[static_cast<std::size_t>(instance.buffer)]) streamed += bytes;
  }
  EngineMemory memory;
  memory.weights = {static_cast<std::int64_t>(weights)};
  memory.streamed_weights = {static_cast<std::int64_t>(streamed)};
  memory.cache_of_token = cache / d(length);
  const double whole = d(scenario.hardware.memory.value), reserved = d(serving.reserved.value);
  const double left = serving.cache_share_of == CacheShareOf::total_memory
                          ? serving.cache_share * whole - weights - reserved
                          : serving.cache_share * (whole - weights - reserved);
  memory.cache_tokens = std::max(0.0, left / memory.cache_of_token);
  return memory;
}

SchedulerLimits engine_limits(const Scenario& scenario) {
  const EngineMemory memory = engine_memory(scenario);
  const ServingImplementation& serving = *scenario.implementation.serving;
  const Workload& w = scenario.workload;
  SchedulerLimits limits;
  limits.batching = serving.batching;
  limits.chunks_prompts = serving.chunks_prompts;
  limits.reserves_output = serving.reserves_output;
  limits.max_sequences = serving.max_sequences;
  limits.max_tokens = serving.max_tokens;
  const std::int64_t length = w.prompt_length + w.max_new_tokens;
  limits.block_tokens = serving.kv_block > 0 ? serving.kv_block : length;
  limits.blocks = static_cast<std::int64_t>(memory.cache_tokens / d(limits.block_tokens));
  if (serving.benchmark_limits) {
    const BenchmarkLimits benchmark = benchmark_limits(scenario, memory.cache_of_token);
    limits.max_sequences = benchmark.sequences;
    limits.max_tokens = benchmark.tokens;
  }
  limits.max_tokens = std::max(limits.max_tokens, limits.max_sequences);
  if (!limits.chunks_prompts) limits.max_tokens = std::max(limits.max_tokens, w.prompt_length);
  if (limits.blocks * limits.block_tokens < length)
    throw std::invalid_argument("a request of " + std::to_string(length) +
                                " tokens does not fit beside the weights: there is room for " +
                                std::to_string(limits.blocks * limits.block_tokens));
  return limits;
}

}  // namespace sim
