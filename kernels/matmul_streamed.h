// Products of a few rows, as decoding has them: they are bound by reading the weight once, and a BLAS packs
// it first, which reads and writes it again.
#pragma once
#include <cstdint>

#include "kernels/matmul.h"

namespace kernels::cpu {

inline constexpr std::int64_t kMaxStreamedRows = 8;

// Columns [begin, end) of matmul_forward()'s out, on the calling thread. s.M is at most kMaxStreamedRows.
void matmul_streamed(float* out, const float* inp, const float* weight, const float* bias,
                     const float* residual, MatmulShape s, std::int64_t begin, std::int64_t end);

}  // namespace kernels::cpu
