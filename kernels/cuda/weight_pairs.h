// Weights as matrix instructions take them: pairs of bf16, which holds all of the formats' values exactly.
// Those in 8 and 4 bits become it in registers, before their scale.
#pragma once
#include "kernels/cuda/quantization.h"
#include "kernels/cuda/thread.h"

namespace kernels::cuda {

struct alignas(16) Vector {
  std::uint32_t words[4];
};

// How many weights a word has, and how many columns a warp's lanes take at a time.
template <WeightFormat Format>
inline constexpr int kInWord = 32 / bits_of_format(Format);
template <WeightFormat Format>
inline constexpr int kSlice = 4 * 4 * kInWord<Format>;

// Bytes of two words by their numbers, as PTX's prmt.
CUDA_DEVICE std::uint32_t pick_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, which);
#else
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  std::uint32_t picked = 0;
  for (int i = 0; i < 4; ++i)
    picked |= static_cast<std::uint32_t>(both >> 8 * (which >> 4 * i & 7u) & 0xffu) << 8 * i;
  return picked;
#endif
}

// (x & mask) | base, which compilers make two instructions of where both are constants.
CUDA_DEVICE std::uint32_t masked_or(std::uint32_t x, std::uint32_t mask, std::uint32_t base) {
#ifdef __CUDA_ARCH__
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(x), "r"(mask), "r"(base));
  return result;
#else
  return (x & mask) | base;
#endif
}

CUDA_DEVICE float first_of(std::uint32_t pair) {
  return float_of(pair << 16);
}
CUDA_DEVICE float second_of(std::uint32_t pair) {
  return float_of(pair & 0xffff0000u);
}

// The sums of two pairs of bf16, and their products.
CUDA_DEVICE std::uint32_t add_pairs(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t sums;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(0x3f803f80u), "r"(b));
  return sums;
#else
  return pack_pair<bf16>(first_of(a) + first_of(b), second_of(a) + second_of(b));
#endif
}
CUDA_DEVICE std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t products;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(products) : "r"(a), "r"(b), "r"(0x80008000u));  // -0
  return products;
#else
  return pack_pair<bf16>(first_of(a) * first_of(b), second_of(a) * second_of(b));
#endif
}

// Two e4m3 numbers, the lower half of `pair`, as bf16, by the instruction that has them in f16.
CUDA_DEVICE std::uint32_t fp8_pair(std::uint32_t pair) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t both;
  asm("{\n .reg .b32 halves;\n .reg .f16 low, high;\n .reg .f32 first, second;\n"
      " cvt.rn.f16x2.e4m3x2 halves, %1;\n mov.b32 {low, high}, halves;\n"
      " cvt.f32.f16 first, low;\n cvt.f32.f16 second, high;\n cvt.rn.bf16x2.f32 %0, second, first;\n}"
      : "=r"(both)
      : "h"(static_cast<std::uint16_t>(pair)));
  return both;
#else
  return pack_pair<bf16>(to_float(e4m3{static_cast<std::uint8_t>(pair & 0xffu)}),
                         to_float(e4m3{static_cast<std::uint8_t>(pair >> 8 & 0xffu)}));
#endif
}

// Words that a matrix instruction takes at least, the pairs of bf16 that they are, and the columns of those.
template <WeightFormat Format>
inline constexpr int kWords = Format == WeightFormat::bf16 ? 2 : 1;
template <WeightFormat Format>
inline constexpr int kColumns = kWords<Format>* kInWord<Format>;
template <WeightFormat Format>
inline constexpr int kPairs = kColumns<Format> / 2;

// Weights as pairs of bf16, before their scale. int4: weights i and i + 4 are a pair; the others: neighbours.
template <WeightFormat Format>
CUDA_DEVICE void widen(std::uint32_t (&pairs)[kPairs<Format>], const std::uint32_t* words) {
  const std::uint32_t word = words[0];
  if constexpr (Format == WeightFormat::bf16) {
    pairs[0] = word;
    pairs[1] = words[1];
  } else if constexpr (Format == WeightFormat::int4) {
    // 128 + a nibble, in bf16, whose last place is then 1.
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] = add_pairs(masked_or(word >> 4 * i, 0x000f000fu, 0x43004300u), 0xc308c308u);  // -136
  } else if constexpr (Format == WeightFormat::int8) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // 128 + the lower seven bits, less 128, or 256 where the sign is set: that bit is the exponent's
      // lowest.
      const std::uint32_t bytes = pick_bytes(word, 0, i == 0 ? 0x4140u : 0x4342u);
      pairs[i] =
          add_pairs(masked_or(bytes, 0x007f007fu, 0x43004300u), masked_or(bytes, 0x00800080u, 0xc300c300u));
    }
  } else {
    pairs[0] = fp8_pair(word);
    pairs[1] = fp8_pair(word >> 16);
  }
}

}  // namespace kernels::cuda
