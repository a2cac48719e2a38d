// How many tokens of KV cache an engine has on the given GPUs, and how much it lets into a step.
#pragma once
#include "sim/scenario/scenario.h"
#include "sim/serving/scheduler.h"

namespace sim {

struct EngineMemory {
  Bytes weights;              // of one rank
  Bytes streamed_weights;     // `weights` without tables that tokens are only looked up in
  double cache_of_token = 0;  // bytes that one token takes on one rank
  double cache_tokens = 0;    // tokens of cache that the ranks of one engine hold together
};

// Computed from the plan's buffers by the profile's rule. Throws std::invalid_argument where validate() has
// problems or the implementation has no serving profile.
EngineMemory engine_memory(const Scenario& scenario);

// Limits of an engine for requests of the workload's lengths. Where the profile says so, those of
// trtllm-bench:
//   R: requests that fit in `cache_share` of the memory beside the weights, at most 4096, over the stages.
//   Batch: R rounded up to a multiple of 32 (at least 64), of 128 from R = 256, of 256 from 1024. Tokens:
//   R (1 + prompt / output), at most 32768, rounded up to a multiple of 256 (at least 2048), of 512 from
//   4096, of 1024 from 8192, and never less than prompt + batch
// (NVIDIA/TensorRT-LLM, tensorrt_llm/bench/build/tuning.py, dataclasses/general.py). Throws
// std::invalid_argument where not even one request fits.
SchedulerLimits engine_limits(const Scenario& scenario);

}  // namespace sim
