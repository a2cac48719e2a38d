// Linear layers: y = x W^T (+ bias) (+ residual), and the two products of its backward pass.
// The weight is stored as (N, K): one row an output feature, as torch.nn.Linear does.
// FLOPs: 2*M*N*K each.
#pragma once
#include <cstdint>

namespace kernels {

// M rows (tokens), N output features, K input features.
struct MatmulShape {
  std::int64_t M, N, K;
};

namespace cpu {

// out (M, N) = inp (M, K) * weight (N, K)^T + bias (N) + residual (M, N). bias and residual may be null;
// residual may be the same memory as out.
void matmul_forward(float* out, const float* inp, const float* weight, const float* bias,
                    const float* residual, MatmulShape s);

// dinp (M, K) = dout (M, N) * weight (N, K); with accumulate, += instead of =.
void matmul_backward_input(float* dinp, const float* dout, const float* weight, bool accumulate,
                           MatmulShape s);

// dweight (N, K) += dout (M, N)^T * inp (M, K); dbias (N) += column sums of dout, where dbias is not null.
// Without accumulate, = in the place of +=.
void matmul_backward_weight(float* dweight, float* dbias, const float* dout, const float* inp, MatmulShape s,
                            bool accumulate = true);

}  // namespace cpu
}  // namespace kernels
