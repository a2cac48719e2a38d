// Random numbers by counting: each a function of what it is for, not of an order or of threads.
#pragma once
#include <bit>
#include <cstdint>

#include "kernels/vectorize.h"

namespace kernels::cpu {

// SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"): what is between two
// states, and its output function, a bijection that leaves no visible structure.
inline constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15u;
KERNELS_INLINE std::uint64_t finalise(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
// The number that follows a state.
KERNELS_INLINE std::uint64_t mix(std::uint64_t state) {
  return finalise(state + kGamma);
}

// A number below 2^52 as a double, without a branch or an instruction that not all vectors have: its bits
// are the low ones of a significand whose exponent is 52.
KERNELS_INLINE double to_double(std::uint64_t n) {
  return std::bit_cast<double>(n | 0x4330000000000000u) - 0x1p52;
}
// A value from 32 bits, uniform in (0, 1]. A logarithm must not see 0.
KERNELS_INLINE double uniform(std::uint64_t bits32) {
  return (to_double(bits32) + 1) * 0x1p-32;
}

// out (count): normal values with that standard deviation, the first of the stream `key`. A pair from each
// number (Box, Muller 1958).
void fill_normal(float* out, std::int64_t count, std::uint64_t key, double standard_deviation);

}  // namespace kernels::cpu
