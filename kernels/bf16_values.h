// Values between bf16 and fp32.
#pragma once
#include <bit>
#include <cstdint>

#include "kernels/cuda/types.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {

using cuda::bf16;

KERNELS_INLINE float widened(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

// To nearest, ties to even; NaN stays NaN. Without branches, so that loops vectorise.
KERNELS_INLINE bf16 rounded(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : nearest)};
}

// The same where values may be fp32 already.
KERNELS_INLINE float widened(float x) {
  return x;
}
KERNELS_INLINE void store(float& out, float x) {
  out = x;
}
KERNELS_INLINE void store(bf16& out, float x) {
  out = rounded(x);
}

void widen(float* to, const bf16* from, std::int64_t count);
// As rounded().
void narrow(bf16* to, const float* from, std::int64_t count);

}  // namespace kernels::cpu
