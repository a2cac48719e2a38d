// Products of small matrices that lie in the first caches, as attention's tiles do: one thread, no packing,
// no allocation.
#pragma once
#include <cstdint>

namespace kernels::cpu {

// A matrix of floats: element (i, j) is data[i * stride + j].
struct ConstMatrix {
  const float* data;
  std::int64_t stride;
};
struct Matrix {
  float* data;
  std::int64_t stride;
};

// c (M, N) = a (M, K) b (K, N); with accumulate, += instead of =.
void tile_product(Matrix c, ConstMatrix a, ConstMatrix b, bool accumulate, std::int64_t M, std::int64_t N,
                  std::int64_t K);

// c (M, N) = a (K, M)^T b (K, N); with accumulate, += instead of =.
void tile_product_transposed(Matrix c, ConstMatrix a, ConstMatrix b, bool accumulate, std::int64_t M,
                             std::int64_t N, std::int64_t K);

}  // namespace kernels::cpu
