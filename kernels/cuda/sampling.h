// From logits to a token on the GPU; meanings as kernels/sampling.h, except that top-k and top-p weigh tokens
// by probabilities in units of 2^-40 of the most probable one's, whose sums do not depend on the order of
// additions.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/sampling.h"

namespace kernels::cuda {

// The settings with the step that they draw for; lies in device memory, so that captured work can be
// replayed.
struct SamplingStep {
  SamplingSettings settings;
  std::int64_t step = 0;
};

// tokens (B) from fp32 logits (B, V).
void sample(const Context& context, std::int32_t* tokens, const float* logits, const SamplingStep* step,
            std::int64_t B, std::int64_t V);

}  // namespace kernels::cuda
