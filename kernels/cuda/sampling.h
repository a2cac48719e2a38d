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

// How many steps' tokens are kept for the host to read.
inline constexpr std::int64_t kTokenTurns = 2;

// From one step of decoding to the next: tokens (B) become `next` (B), positions (B) and the step of sampling
// count on by one. `kept` (kTokenTurns, B), in memory that the host reads, gets `next` in the row of the step
// that chose it, modulo kTokenTurns.
struct TokenLoop {
  std::int32_t *tokens, *positions;
  const std::int32_t* next;
  std::int32_t* kept;
  SamplingStep* step;
  std::int64_t B;
};
void pass_tokens_on(const Context& context, const TokenLoop& loop);

}  // namespace kernels::cuda
