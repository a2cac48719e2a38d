// Products of few rows with a weight matrix, as decoding makes them: bound by reading the weights once.
#pragma once
#include "kernels/cuda/kv_cache.h"
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

// The kernel right before one of these must not write the weights: they are read while it may still run
// (early_start.h).
//
// out (M, N) = inp (M, K) weight^T + bias (N) + addend (M, N); inp, bias and addend bf16, out bf16 or fp32
// (no addend then). bias and addend may be absent; addend may be out.
void gemv(const Context& context, Tensor out, ConstTensor inp, const Weights& weights, ConstTensor bias,
          ConstTensor addend, std::int64_t M, std::int64_t N, std::int64_t K);

// What a product of few rows does besides, in bf16: the norm of its input, and an operation on its result.
// Each alone would be a launch that moves next to nothing. Shapes are those of one row:
struct InputNorm {
  enum class Kind { none, rms, layer };
  Kind kind = Kind::none;
  ConstTensor gain, shift;  // (K); LayerNorm's shift may be absent
  float eps = 0;
  Tensor normed;  // (K): the row under its norm, rounded; may be absent
};
struct Ending {
  enum class Kind {
    none,
    gelu,           // activated (N)
    silu_gate,      // activated (N / 2) = silu(the first half of the results) * the second half
    gelu_gate,      // the same by GELU
    rotate_append,  // out is qkv of one token: as rope_kv_append() (attention.h)
  };
  Kind kind = Kind::none;
  Tensor activated;
  KvCache cache;
  const float* table = nullptr;
  const std::int32_t* position = nullptr;
  AttentionShape shape{};
};

// out (N) = ending of (norm(inp (K)) weight^T + bias (N) + addend (N)), all bf16; without an ending out may
// be fp32. What is handed on within the kernel is not rounded in between. N is even where halves of it meet.
void gemv_with(const Context& context, Tensor out, ConstTensor inp, const Weights& weights, ConstTensor bias,
               ConstTensor addend, std::int64_t N, std::int64_t K, const InputNorm& norm,
               const Ending& ending);

// gemv() of more rows, by tensor cores: at most kNarrowRows rows (kNarrowRowsOfBf16 with weights in bf16),
// and K whole slices of 64 columns, 32 in bf16 or 128 in int4. Each 32 rows of weights read the whole input
// from L2: 32 rows of input are as many bytes as those weights in bf16.
inline constexpr std::int64_t kNarrowRows = 64, kNarrowRowsOfBf16 = 32;
bool gemv_tensor_cores_takes(WeightFormat format, std::int64_t M, std::int64_t K);
// Whether instructions and registers are left for more than the product, in bf16: an RMSNorm of the input
// (M, K), GELU (M, N) or a gate (M, N / 2). There is no LayerNorm: for its statistics each block would first
// have to pass over the whole input.
bool gemv_tensor_cores_has_gate(WeightFormat format, std::int64_t M);
bool gemv_tensor_cores_has_norm(WeightFormat format, std::int64_t M);
void gemv_tensor_cores(const Context& context, Tensor out, ConstTensor inp, const Weights& weights,
                       ConstTensor bias, ConstTensor addend, std::int64_t M, std::int64_t N, std::int64_t K,
                       const InputNorm& norm = {}, const Ending& ending = {});

// out (rows, K), in 16 bits or fp32, = the weights' rows from `first` on, multiplied by their scales.
// Products of more rows than gemv() takes read it. K as gemv_takes() requires.
void dequantise(const Context& context, Tensor out, const Weights& weights, std::int64_t first,
                std::int64_t rows, std::int64_t K);

}  // namespace kernels::cuda
