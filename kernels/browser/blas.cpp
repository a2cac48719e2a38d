// Products where no BLAS can be loaded, in a browser: blocks of both matrices are packed and multiplied by
// the same kernel that multiplies attention's tiles, whose loops become the browser's vectors.
#include "kernels/blas.h"

#include <algorithm>
#include <vector>

#include "kernels/tile_product.h"

namespace {

// A block of each matrix, 64 KiB and less, lies in the first two caches.
constexpr int kRows = 64, kColumns = 128, kDepth = 128;

// block (rows, columns) = the elements of a matrix from (row, column) on; `transposed`: the matrix is given
// as its transpose.
void pack(float* block, const float* matrix, int stride, bool transposed, int row, int column, int rows,
          int columns) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      const auto at = transposed ? (std::ptrdiff_t{column} + j) * stride + row + i
                                 : (std::ptrdiff_t{row} + i) * stride + column + j;
      block[i * columns + j] = matrix[at];
    }
}

}  // namespace

void cblas_sgemm(CBLAS_ORDER, CBLAS_TRANSPOSE trans_a, CBLAS_TRANSPOSE trans_b, int m, int n, int k,
                 float alpha, const float* a, int lda, const float* b, int ldb, float beta, float* c,
                 int ldc) {
  for (std::ptrdiff_t i = 0; i < m; ++i) {
    float* const row = c + i * ldc;
    if (beta == 0)  // what was there may be no number
      std::fill_n(row, n, 0.0f);
    else if (beta != 1)
      std::transform(row, row + n, row, [beta](float value) { return beta * value; });
  }
  std::vector<float> packed_a(kRows * kDepth), packed_b(kDepth * kColumns);
  for (int column = 0; column < n; column += kColumns) {
    const int columns = std::min(kColumns, n - column);
    for (int depth = 0; depth < k; depth += kDepth) {
      const int inner = std::min(kDepth, k - depth);
      pack(packed_b.data(), b, ldb, trans_b == CblasTrans, depth, column, inner, columns);
      for (int row = 0; row < m; row += kRows) {
        const int rows = std::min(kRows, m - row);
        pack(packed_a.data(), a, lda, trans_a == CblasTrans, row, depth, rows, inner);
        if (alpha != 1)
          std::for_each(packed_a.begin(), packed_a.begin() + rows * inner,
                        [alpha](float& value) { value *= alpha; });
        kernels::cpu::tile_product({c + std::ptrdiff_t{row} * ldc + column, ldc}, {packed_a.data(), inner},
                                   {packed_b.data(), columns}, true, rows, columns, inner);
      }
    }
  }
}

void openblas_set_num_threads(int) {}

char* openblas_get_config() {
  static char name[] = "tiles of this program's own";
  return name;
}

namespace kernels::cpu {

void choose_blas_instructions() {}

const Blas& blas() {
  static const Blas own = {cblas_sgemm, openblas_set_num_threads, openblas_get_config};
  return own;
}

}  // namespace kernels::cpu
