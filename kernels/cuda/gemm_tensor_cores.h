// A matrix product written out, to be read and to be compared: what cuBLASLt (products.h) does, as a tiled
// kernel with mma.sync. Runs use cuBLASLt; tests/gpu reports this one as a share of it.
#pragma once
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// out (M, N) = inp (M, K) weight (N, K)^T, all bf16, fp32 sums. K is a multiple of 8.
void gemm_tensor_cores(const Context& context, Tensor out, ConstTensor inp, ConstTensor weight,
                       std::int64_t M, std::int64_t N, std::int64_t K);

}  // namespace kernels::cuda
