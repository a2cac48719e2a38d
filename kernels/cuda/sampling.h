// From logits to a token on the GPU; meanings as kernels/sampling.h, except that tokens weigh by
// probabilities in units of 2^-45 of the most probable one's, whose sums do not depend on the order of
// additions.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/sampling.h"

namespace kernels::cuda {

// tokens (B) from the first V of fp32 logits (B, columns); throws CudaError unless V < 2^18. `step` lies in
// device memory, so that captured work can be replayed for other steps; the settings are captured with it.
void sample(const Context& context, std::int32_t* tokens, const float* logits,
            const SamplingSettings& settings, const std::int64_t* step, std::int64_t B, std::int64_t columns,
            std::int64_t V);

// How many steps' tokens are kept for the host to read.
inline constexpr std::int64_t kTokenTurns = 2;

// From one step of decoding to the next: tokens (B) become `next` (B); positions (B) and the sampling step go
// up by one. `kept` (kTokenTurns, B), in memory that the host reads, gets `next` in row (sampling step that
// chose it) modulo kTokenTurns.
struct TokenLoop {
  std::int32_t *tokens, *positions;
  const std::int32_t* next;
  std::int32_t* kept;
  std::int64_t* step;
  std::int64_t B;
};
void pass_tokens_on(const Context& context, const TokenLoop& loop);

}  // namespace kernels::cuda
