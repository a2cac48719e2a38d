// Elementary functions as branch-free polynomials, so that the loops that call them vectorise. (GCC
// vectorises std::exp only under -ffast-math.)
#pragma once
#include <bit>
#include <cstdint>

#include "kernels/vectorize.h"

namespace kernels::cpu {

// exp(x) in fp32: at most 2 ulp from the exact value for x in [-87.33, 88]. Below, where the result would be
// denormal, 0 (also for -inf); above, exp(88) = 1.65e38 (no caller can tell it from infinity). NaN stays NaN.
// Cody & Waite's reduction, x = n ln2 + r with |r| <= ln2 / 2 and ln2 in two parts so that n * high is exact;
// then the degree-6 polynomial of Cephes' expf (Moshier 1992), then the exponent field.
KERNELS_INLINE float exp_approx(float x) {
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kLowest = -87.33f;  // exp(kLowest) is a normal number
  constexpr float kHighest = 88.0f;
  constexpr float kExpOfHighest = 1.6516362549940018e38f;
  // Adding 1.5 * 2^23 leaves round(y) in the low bits of the significand.
  constexpr float kRound = 12582912.0f;

  // Outside the range all this is meaningless, but harmless: the last lines replace it.
  const float shifted = x * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // Unsigned: the shift pushes the rounding constant's own bits out at the top.
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127u) << 23);
  const float within = x > kHighest ? kExpOfHighest : p * power;
  return x < kLowest ? 0.0f : within;
}

// sigmoid(x) = 1 / (1 + exp(-x)), and its complement 1 - sigmoid(x) without the cancellation of that
// subtraction.
struct Sigmoid {
  float value, complement;
};
KERNELS_INLINE Sigmoid sigmoid_approx(float x) {
  const float e = exp_approx(-x);
  const float value = 1.0f / (1.0f + e);
  return {value, e * value};
}

// tanh(x), to 3e-7 of its value. Near 0, where 1 - 2 / (exp(2x) + 1) cancels, the polynomial of Cephes' tanhf
// (Moshier 1992).
KERNELS_INLINE float tanh_approx(float x) {
  const float square = x * x;
  float p = -5.70498872745e-3f;
  p = p * square + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  const float near_zero = x + x * square * p;
  const float elsewhere = 1.0f - 2.0f / (exp_approx(2 * x) + 1.0f);
  return square < 0.625f * 0.625f ? near_zero : elsewhere;
}

}  // namespace kernels::cpu
