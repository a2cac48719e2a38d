// Products of few rows with a weight matrix, as decoding makes them: bound by reading the weights once.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/cuda/quantization.h"

namespace kernels::cuda {

// weight (N, K); scales (N), or (N, K / kInt4Group) for int4; null for bf16.
struct Weights {
  WeightFormat format = WeightFormat::bf16;
  const void* data = nullptr;
  const float* scales = nullptr;
};

inline constexpr std::int64_t kGemvRows = 8;

// Whether gemv() takes the shape: at most kGemvRows rows, K whole vectors of 16 bytes of weights, and whole
// groups for int4.
bool gemv_takes(WeightFormat format, std::int64_t M, std::int64_t K);

// The kernel right before one of these does not write the weights: they are read while it may still work
// (early_start.h).
//
// out (M, N) = inp (M, K) weight^T + bias (N) + addend (M, N); inp, bias and addend bf16, out bf16 or fp32
// (no addend then). bias and addend may be absent; addend may be out.
void gemv(const Context& context, Tensor out, ConstTensor inp, const Weights& weights, ConstTensor bias,
          ConstTensor addend, std::int64_t M, std::int64_t N, std::int64_t K);

// The same of more rows, by tensor cores, for weights in 8 or 4 bits: at most kNarrowRows rows, K whole
// slices of 64 columns, or 128 of int4.
inline constexpr std::int64_t kNarrowRows = 64;
bool gemv_tensor_cores_takes(WeightFormat format, std::int64_t M, std::int64_t K);
void gemv_tensor_cores(const Context& context, Tensor out, ConstTensor inp, const Weights& weights,
                       ConstTensor bias, ConstTensor addend, std::int64_t M, std::int64_t N, std::int64_t K);

// out (rows, K), of 16 bits or fp32, = the weights' rows from `first` on, their scales taken in: what a
// product of more rows than gemv() takes reads. K as gemv_takes() has it.
void dequantise(const Context& context, Tensor out, const Weights& weights, std::int64_t first,
                std::int64_t rows, std::int64_t K);

}  // namespace kernels::cuda
