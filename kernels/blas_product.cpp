#include "kernels/blas_product.h"

#include "kernels/blas.h"
#include "kernels/matmul_packed.h"

namespace kernels::cpu {

void add_product(Matrix c, Factor a, Factor b, std::int64_t M, std::int64_t N, std::int64_t K, float alpha) {
  if (takes_packed_product(M, N, K))
    return packed_fp32_product({c.data, c.stride, nullptr, c.data, alpha}, a, b, M, N, K);
  const auto size = [](std::int64_t n) { return static_cast<int>(n); };  // as a BLAS takes it
  const auto order = [](const Factor& f) { return f.transposed ? CblasTrans : CblasNoTrans; };
  blas().sgemm(CblasRowMajor, order(a), order(b), size(M), size(N), size(K), alpha, a.data, size(a.stride),
               b.data, size(b.stride), 1.0f, c.data, size(c.stride));
}

}  // namespace kernels::cpu
