// Products that are large enough for a BLAS, added to c. Packed tiles (matmul_packed.h) form them where these
// are faster.
#pragma once
#include <cstdint>

#include "kernels/tile_product.h"

namespace kernels::cpu {

// A factor as it lies in memory, or the transpose of that.
struct Factor {
  const float* data;
  std::int64_t stride;  // from row to row in memory
  bool transposed = false;
};

// c (M, N) += alpha a (M, K) b (K, N).
//
// Whoever wants the product alone writes zeros before: OpenBLAS writes them (beta = 0) so slowly that two
// cores of an AMD EPYC took up to 1.4 times as long for a product of 64 rows. Within a parallel region it
// computes on the calling thread alone, elsewhere on all.
void add_product(Matrix c, Factor a, Factor b, std::int64_t M, std::int64_t N, std::int64_t K,
                 float alpha = 1.0f);

}  // namespace kernels::cpu
