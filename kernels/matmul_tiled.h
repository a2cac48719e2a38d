// Products of some tens of rows, as short prompts and batches of them have: tiles of some rows by four of the
// weight's rows in registers, nothing packed. A BLAS packs both factors first, which pays for more rows, and
// OpenBLAS cuts rows into parts for its threads that its kernels are slow on: at 9 to 31 rows it computed a
// half to a quarter as fast on two cores of an AMD EPYC.
#pragma once
#include <cstdint>

#include "kernels/matmul.h"

namespace kernels::cpu {

// The most rows: with more, a BLAS is as fast or faster. First on several threads, then on one.
inline constexpr std::int64_t kMaxTiledRows = 47, kMaxTiledRowsAlone = 31;

// Columns [begin, end) of matmul_forward()'s out, on the calling thread. The bits of a column do not depend
// on the range that it is computed in.
void matmul_tiled(float* out, const float* inp, const float* weight, const float* bias, const float* residual,
                  MatmulShape s, std::int64_t begin, std::int64_t end);

}  // namespace kernels::cpu
