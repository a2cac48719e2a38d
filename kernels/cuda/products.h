// Matrix products on the GPU: cuBLASLt's (products.cu), with the algorithm for each shape found once; plain
// loops where kernels are emulated (products_emulated.cpp).
#pragma once
#include <memory>

#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// out (M, N) = scale * a (M, K) b (K, N) + bias (N) + addend (M, N), row-major, fp32 sums; `batch` of them at
// strides. Transposed operands are stored as (K, M) and (N, K). a and b are of one type, or both in fp8; so
// are out and addend, which may be the same memory. Leading dimensions (elements from row to row) 0: rows lie
// side by side. In fp8 both operands have K contiguous (transpose_b alone) and N, K and leading dimensions
// are multiples of 16, as Hopper's tensor cores have it.
struct Product {
  std::int64_t M, N, K;
  ConstTensor a{}, b{};
  Tensor out{};
  bool transpose_a = false, transpose_b = false;
  ConstTensor bias{}, addend{};
  float scale = 1;
  const float *scale_a = nullptr, *scale_b = nullptr;  // of operands in fp8: device scalars
  std::int64_t lda = 0, ldb = 0, ldout = 0;
  std::int64_t batch = 1, stride_a = 0, stride_b = 0, stride_out = 0;
  bool tf32 = false;  // fp32 operands rounded to TF32's 10 bits: faster; otherwise true fp32
};

class Products {
 public:
  // Workspace for the algorithms that split K; NVIDIA recommends 32 MiB on Hopper.
  static constexpr std::int64_t kWorkspaceBytes = 32 << 20;

  // Deterministic: the library's first choice for a shape instead of the fastest of several as timed here,
  // which may be another one in the next process. Throws CudaError where cuBLASLt does not start.
  explicit Products(bool deterministic);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Scratch memory may be used to keep `out` while algorithms for a new shape are timed.
  void run(const Context& context, const Product& product);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace kernels::cuda
