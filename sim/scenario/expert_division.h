// Fills in how experts are divided beside tensor parallelism where the user does not say it.
#pragma once
#include "sim/scenario/scenario.h"

namespace sim {

// Which of these fields the description of a run sets itself.
struct SaidOfExperts {
  bool sequence_parallel = false, expert_tensor_parallel = false;
};

// Fills in the rest of a training strategy as Megatron-Core does. Experts beside tensor parallelism need
// sequence parallelism (NVIDIA/Megatron-LM, core/model_parallel_config.py). An expert lies whole on one rank
// where the data- and context-parallel ranks are too few to divide experts over without the tensor-parallel
// ones: NVIDIA-NeMo/Megatron-Bridge trains Qwen3-235B-A22B on 256 GPUs with tp 2, pp 8 and ep 32, its recipe
// leaves expert_tensor_parallel_size open, and open means 1. Strategies that are legal stay as they are.
void complete_expert_division(Scenario& scenario, const SaidOfExperts& said);

}  // namespace sim
