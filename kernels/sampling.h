// From logits to a token: greedy, or temperature, top-k and top-p from a counter-based random number.
#pragma once
#include <cstdint>

namespace kernels {

struct SamplingSettings {
  float temperature = 0;   // 0: greedy (the lowest id among equals)
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;         // 1: all
  std::uint64_t seed = 0;

  bool operator==(const SamplingSettings&) const = default;
};

namespace cpu {

// tokens (B) from logits (B, V). The random number of row b is a function of (seed, step, b) alone, so a
// resumed or re-batched run draws the same. First temperature, then top-k, then top-p applies. The remaining
// tokens are walked in the order of their ids; the first at which the sum of probabilities exceeds the random
// number is drawn.
void sample(std::int32_t* tokens, const float* logits, const SamplingSettings& settings, std::int64_t step,
            std::int64_t B, std::int64_t V);

}  // namespace cpu
}  // namespace kernels
