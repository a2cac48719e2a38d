// GELU in its tanh form (Hendrycks, Gimpel 2016, arXiv 1606.08415), that of GPT-2 and of cuBLASLt's
// epilogues.
#pragma once
#include <cmath>

#include "kernels/cuda/thread.h"

namespace kernels::cuda {

// By one exponential. Its error is a rounding of 1, not of the result: enough for GELU, which adds 1 to it.
CUDA_DEVICE float tanh_of(float x) {
  const float e = expf(2 * fabsf(x));
  const float y = 1 - 2 / (e + 1);
  return copysignf(y, x);
}

inline constexpr float kSqrt2OverPi = 0.7978845608028654f;
inline constexpr float kCubic = 0.044715f;

CUDA_DEVICE float gelu(float x) {
  return 0.5f * x * (1 + tanh_of(kSqrt2OverPi * (x + kCubic * x * x * x)));
}

CUDA_DEVICE float gelu_slope(float x) {
  const float t = tanh_of(kSqrt2OverPi * (x + kCubic * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kCubic * x * x);
}

}  // namespace kernels::cuda
