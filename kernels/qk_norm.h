// RMSNorm of queries and keys in packed qkv (B*T rows of (H + 2G) * D: H query heads, G key heads, G value
// heads). Either each head by itself with one gain of D for queries and one for keys (Qwen3), or all query
// heads as one vector and all key heads as another, with gains as wide (OLMo 2). Gains of queries come first.
#pragma once
#include <cstdint>

namespace kernels {

struct QkNormShape {
  std::int64_t R, H, G, D;  // rows (tokens), query heads, key heads, elements of a head
  bool all_heads = false;
};

namespace cpu {

// out (R, (H+2G)*D): queries and keys normed, values copied. rstd (R, H+G) may be null; with all_heads only
// the first of the queries and the first of the keys are used. weight: (2, D), with all_heads ((H+G)*D);
// null: gains of 1 (Llama 4).
void qk_norm_forward(float* out, float* rstd, const float* inp, const float* weight, float eps,
                     QkNormShape s);

// dqkv (R, (H+2G)*D) in place: gradients of the result become those of inp; values' stay. dweight +=, may be
// null.
void qk_norm_backward(float* dqkv, float* dweight, const float* inp, const float* weight, const float* rstd,
                      QkNormShape s);

}  // namespace cpu
}  // namespace kernels
