// LayerNorm over the last dimension. Weight and bias may be null: 1 and 0.
#pragma once
#include <cstdint>

namespace kernels::cpu {

// out (R, C); mean (R) and rstd (R) are kept for backward, both may be null. inp (R, C), weight (C), bias
// (C).
void layernorm_forward(float* out, float* mean, float* rstd, const float* inp, const float* weight,
                       const float* bias, float eps, std::int64_t R, std::int64_t C);

// dinp (R, C) += gradient with respect to inp (it adds to the residual stream's gradient);
// dweight (C) +=, dbias (C) +=, each null where it is not wanted.
void layernorm_backward(float* dinp, float* dweight, float* dbias, const float* dout, const float* inp,
                        const float* weight, const float* mean, const float* rstd, std::int64_t R,
                        std::int64_t C);

}  // namespace kernels::cpu
