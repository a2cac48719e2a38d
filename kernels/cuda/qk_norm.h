// RMSNorm of queries and keys in packed qkv on the GPU; shapes and meanings as kernels/qk_norm.h. Activations
// and weights are of one type, the weights' gradients of another; rstd is fp32.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/qk_norm.h"

namespace kernels::cuda {

// out may be inp; rstd may be null, the weight absent: gains of 1.
void qk_norm_forward(const Context& context, Tensor out, float* rstd, ConstTensor inp, ConstTensor weight,
                     float eps, QkNormShape s);

// dqkv in place; dweight, which may be absent, is added to in an order that depends on the shape alone, by
// way of at most kQkNormParts partial sums of a gain in scratch memory.
inline constexpr int kQkNormParts = 264;
void qk_norm_backward(const Context& context, Tensor dqkv, Tensor dweight, ConstTensor inp,
                      ConstTensor weight, const float* rstd, QkNormShape s);

}  // namespace kernels::cuda
