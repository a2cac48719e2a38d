// Matrix products on the GPU: cuBLASLt's (products.cu), with the algorithm for each shape found once; plain
// loops where kernels are emulated (emulated/products.cpp).
#pragma once
#include <functional>
#include <memory>

#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// What is done to a product before it is stored. Each saves a pass over memory; its tensors have out's type:
//   gelu           pre_activation (M, N) = scale * a b + bias, out = gelu(pre_activation) of its fp32
//                  values (gelu.h; in 16 bits, for which the library's tanh is meant); bias may be absent
//   gelu_gradient  out = scale * a b times GELU's slope at pre_activation (M, N)
//   row_sums       row_sums (M) = the sums over K of a's rows, beside out: a bias's gradient beside its
//                  weight's
enum class Epilogue { none, gelu, gelu_gradient, row_sums };

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
  Epilogue epilogue = Epilogue::none;
  Tensor pre_activation{}, row_sums{};
};

class Products {
 public:
  // Workspace for the algorithms that split K; NVIDIA recommends 32 MiB on Hopper.
  static constexpr std::int64_t kWorkspaceBytes = 32 << 20;

  // Deterministic: takes the library's first choice for a shape. Otherwise takes the fastest of several as
  // timed here, which may be another one in the next process. Throws CudaError where cuBLASLt does not start.
  explicit Products(bool deterministic);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Scratch memory may be used to keep `out` while algorithms for a new shape are timed.
  void run(const Context& context, const Product& product);

  // `fused` has an epilogue. Runs it and returns true where the library offers it and it takes less time than
  // `plain` followed by `rest`, as timed once for its shape; else does nothing and returns false. Timing runs
  // all three, `rest` with scratch memory of its own: their results must not depend on how often they run,
  // except for an addend that is also `out`. If deterministic, runs it wherever the library offers it, except
  // for Epilogue::gelu: its results differ in their bits from those of GELU alone, by which a plan may
  // compute them again from what it kept.
  bool run_if_faster(const Context& context, const Product& fused, const Product& plain,
                     const std::function<void(const Context&)>& rest);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace kernels::cuda
