// Linear layers whose weights are stored in e4m3 (kernels/fp8.h), each row with a scale of its own: some rows
// at a time are widened on the way into the product.
#pragma once
#include <cstdint>

#include "kernels/matmul.h"

namespace kernels::cpu {

// codes (N, K) e4m3; scales (N): what a row's values are multiplied by.
struct Fp8Weight {
  const std::uint8_t* codes;
  const float* scales;
};

// out (M, N) = inp (M, K) * weight (N, K)^T + bias (N) + residual (M, N). bias and residual may be null;
// residual may be the same memory as out. The bits are the same on any number of threads.
void matmul_fp8(float* out, const float* inp, Fp8Weight weight, const float* bias, const float* residual,
                MatmulShape s);

}  // namespace kernels::cpu
