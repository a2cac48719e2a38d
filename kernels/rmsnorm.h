// RMSNorm over the last dimension: out = inp * rsqrt(mean(inp^2) + eps) * weight.
#pragma once
#include <cstdint>

#include "kernels/strided_rows.h"

namespace kernels::cpu {

// out (R, C); rstd (R) is kept for backward, may be null. inp (R, C), weight (C).
void rmsnorm_forward(float* out, float* rstd, const float* inp, const float* weight, float eps,
                     std::int64_t R, std::int64_t C);

// dinp (R, C) += gradient with respect to inp (it adds to the residual stream's gradient); dweight (C) +=,
// null where it is not wanted.
void rmsnorm_backward(float* dinp, float* dweight, const float* dout, const float* inp, const float* weight,
                      const float* rstd, std::int64_t R, std::int64_t C);

// The same where rows are columns of wider ones.
void rmsnorm_forward(StridedRows<float> out, float* rstd, StridedRows<const float> inp, const float* weight,
                     float eps, std::int64_t R, std::int64_t C);
void rmsnorm_backward(StridedRows<float> dinp, float* dweight, StridedRows<const float> dout,
                      StridedRows<const float> inp, const float* weight, const float* rstd, std::int64_t R,
                      std::int64_t C);

}  // namespace kernels::cpu
