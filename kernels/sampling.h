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
// resumed or re-batched run draws the same. Order as usual: temperature, then top-k, then top-p; of the
// tokens that are left, in the order of their ids, the first is drawn at which their probabilities add up to
// more than the number.
void sample(std::int32_t* tokens, const float* logits, const SamplingSettings& settings, std::int64_t step,
            std::int64_t B, std::int64_t V);

}  // namespace cpu
}  // namespace kernels
