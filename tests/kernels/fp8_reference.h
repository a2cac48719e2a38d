// The 8-bit floating point formats by their definition, in double: OCP 8-bit floating point, revision 1.0.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/cuda/types.h"

namespace reference {

using kernels::cuda::Type;

// Codes of finite magnitudes: 0 .. fp8_codes() - 1, in ascending order. The sign is bit 7.
inline std::uint32_t fp8_codes(Type format) {
  return format == Type::e4m3 ? 0x7f : 0x7c;
}

// The value of a code, which is finite.
inline double fp8_value(Type format, std::uint32_t code) {
  const int significand_bits = format == Type::e4m3 ? 3 : 2, bias = format == Type::e4m3 ? 7 : 15;
  const int exponent = static_cast<int>((code & 0x7fu) >> significand_bits);
  const double significand =
      static_cast<double>(code & ((1u << significand_bits) - 1)) / (1 << significand_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(significand, 1 - bias) : std::ldexp(1 + significand, exponent - bias);
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

// The code of the nearest value, of two the even one; beyond the largest value it is that. Tries them all.
inline std::uint8_t nearest_fp8(Type format, double x) {
  std::uint32_t nearest = 0;
  for (std::uint32_t code = 1; code < fp8_codes(format); ++code) {
    const double nearer =
        std::abs(fp8_value(format, nearest) - std::abs(x)) - std::abs(fp8_value(format, code) - std::abs(x));
    if (nearer > 0 || (nearer == 0 && code % 2 == 0)) nearest = code;
  }
  return static_cast<std::uint8_t>(nearest | (std::signbit(x) ? 0x80u : 0u));
}

}  // namespace reference
