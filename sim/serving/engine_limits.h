// How many tokens of KV cache an engine has on the given GPUs, and how much it lets into a step.
#pragma once
#include "sim/scenario/scenario.h"
#include "sim/serving/scheduler.h"

namespace sim {

struct EngineMemory {
  Bytes weights;              // of one rank
  Bytes streamed_weights;     // of these, without tables that tokens are only looked up in
  double cache_of_token = 0;  // bytes of one rank
  double cache_tokens = 0;    // that the ranks of one engine hold
};

// By the plan's buffers and the profile's rule. Throws std::invalid_argument where validate() has problems,
// or the implementation has no serving profile.
EngineMemory engine_memory(const Scenario& scenario);

// Limits of an engine for requests of the workload's lengths. Where the profile says so, those of
// trtllm-bench:
//   requests R that fit in `cache_share` of the memory beside the weights, at most 4096; batch: R rounded up
//   to 32 (at least 64), from 256 to 128, from 1024 to 256; tokens: R (1 + prompt / output), at most 32768,
//   rounded up to 256 (at least 2048), from 4096 to 512, from 8192 to 1024, and never less than prompt +
//   batch
// (NVIDIA/TensorRT-LLM, tensorrt_llm/bench/build/tuning.py, dataclasses/general.py). Throws
// std::invalid_argument where not even one request fits.
SchedulerLimits engine_limits(const Scenario& scenario);

}  // namespace sim
