#include "kernels/tile_product.h"

#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// A block of c stays in registers while K runs: every step reads one row of b's columns and one scalar of a
// for each row.
template <int kRows, int kColumns, bool kTransposed>
KERNELS_INLINE void block_product(float* c, std::int64_t c_stride, ConstMatrix a, const float* b,
                                  std::int64_t b_stride, bool accumulate, std::int64_t K) {
  float sums[kRows][kColumns];
  if (accumulate) {
    for (int i = 0; i < kRows; ++i)
#pragma omp simd
      for (int j = 0; j < kColumns; ++j) sums[i][j] = c[i * c_stride + j];
  } else {
    for (int i = 0; i < kRows; ++i)
#pragma omp simd
      for (int j = 0; j < kColumns; ++j) sums[i][j] = 0;
  }
  for (std::int64_t k = 0; k < K; ++k) {
    for (int i = 0; i < kRows; ++i) {
      const float scalar = kTransposed ? a.data[k * a.stride + i] : a.data[i * a.stride + k];
#pragma omp simd
      for (int j = 0; j < kColumns; ++j) sums[i][j] += scalar * b[k * b_stride + j];
    }
  }
  for (int i = 0; i < kRows; ++i)
#pragma omp simd
    for (int j = 0; j < kColumns; ++j) c[i * c_stride + j] = sums[i][j];
}

// kColumns columns of c, all rows: blocks of kRows, then of half as many, down to one.
template <int kRows, int kColumns, bool kTransposed>
KERNELS_INLINE void column_product(Matrix c, ConstMatrix a, ConstMatrix b, bool accumulate, std::int64_t M,
                                   std::int64_t K) {
  const auto rows_of_a = [a](std::int64_t i) {
    return ConstMatrix{a.data + (kTransposed ? i : i * a.stride), a.stride};
  };
  std::int64_t i = 0;
  for (; i + kRows <= M; i += kRows)
    block_product<kRows, kColumns, kTransposed>(c.data + i * c.stride, c.stride, rows_of_a(i), b.data,
                                                b.stride, accumulate, K);
  if constexpr (kRows > 1)
    column_product<kRows / 2, kColumns, kTransposed>({c.data + i * c.stride, c.stride}, rows_of_a(i), b,
                                                     accumulate, M - i, K);
}

template <int kRows, int kColumns, bool kTransposed>
KERNELS_INLINE void product(Matrix c, ConstMatrix a, ConstMatrix b, bool accumulate, std::int64_t M,
                            std::int64_t N, std::int64_t K) {
  std::int64_t j = 0;
  for (; j + kColumns <= N; j += kColumns)
    column_product<kRows, kColumns, kTransposed>({c.data + j, c.stride}, a, {b.data + j, b.stride},
                                                 accumulate, M, K);
  for (; j + 8 <= N; j += 8)
    column_product<kRows, 8, kTransposed>({c.data + j, c.stride}, a, {b.data + j, b.stride}, accumulate, M,
                                          K);
  for (; j < N; ++j)
    column_product<kRows, 1, kTransposed>({c.data + j, c.stride}, a, {b.data + j, b.stride}, accumulate, M,
                                          K);
}

// The block is what the vector registers hold: 8 x 32 takes 16 of AVX-512's 32; 4 x 16 takes 8 of AVX2's 16.
KERNELS_MULTIVERSION void product_wide(Matrix c, ConstMatrix a, ConstMatrix b, bool accumulate,
                                       std::int64_t M, std::int64_t N, std::int64_t K) {
  product<8, 32, false>(c, a, b, accumulate, M, N, K);
}
KERNELS_MULTIVERSION void product_narrow(Matrix c, ConstMatrix a, ConstMatrix b, bool accumulate,
                                         std::int64_t M, std::int64_t N, std::int64_t K) {
  product<4, 16, false>(c, a, b, accumulate, M, N, K);
}
KERNELS_MULTIVERSION void transposed_wide(Matrix c, ConstMatrix a, ConstMatrix b, bool accumulate,
                                          std::int64_t M, std::int64_t N, std::int64_t K) {
  product<8, 32, true>(c, a, b, accumulate, M, N, K);
}
KERNELS_MULTIVERSION void transposed_narrow(Matrix c, ConstMatrix a, ConstMatrix b, bool accumulate,
                                            std::int64_t M, std::int64_t N, std::int64_t K) {
  product<4, 16, true>(c, a, b, accumulate, M, N, K);
}

}  // namespace

void tile_product(Matrix c, ConstMatrix a, ConstMatrix b, bool accumulate, std::int64_t M, std::int64_t N,
                  std::int64_t K) {
  (has_wide_vectors() ? product_wide : product_narrow)(c, a, b, accumulate, M, N, K);
}

void tile_product_transposed(Matrix c, ConstMatrix a, ConstMatrix b, bool accumulate, std::int64_t M,
                             std::int64_t N, std::int64_t K) {
  (has_wide_vectors() ? transposed_wide : transposed_narrow)(c, a, b, accumulate, M, N, K);
}

}  // namespace kernels::cpu
