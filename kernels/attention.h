// Causal attention with grouped key/value heads, scale 1/sqrt(D).
//   attention_flash_*     tiles over keys with an online softmax, keeps only out and the log-sum-exp per row
//                         (Dao et al. 2022, arXiv 2205.14135); exact.
//   attention_standard_*  materialises the (T, T) probabilities, as textbooks and PyTorch's eager code do.
//   attention_cached      queries against a KV cache (prefill of new tokens and decode).
// Flash and cached attention give the same bits on any number of threads.
// Packed qkv is (B, T, (H + 2G) * D): H query heads, then G key heads, then G value heads of a token.
#pragma once
#include <cstdint>

#include "kernels/kv_cache.h"

namespace kernels {

struct AttentionShape {
  std::int64_t B, T, H, G, D;
};

namespace cpu {

// out (B, T, H*D); lse (B, H, T) natural-log sum of exponentials of the scaled scores, may be null.
void attention_flash_forward(float* out, float* lse, const float* qkv, AttentionShape s);

// dqkv (B, T, (H+2G)*D) = gradient (overwritten).
void attention_flash_backward(float* dqkv, const float* dout, const float* qkv, const float* out,
                              const float* lse, AttentionShape s);

// probabilities (B, H, T, T): softmax of the masked scores, zero above the diagonal.
void attention_standard_forward(float* out, float* probabilities, const float* qkv, AttentionShape s);

// scratch_dprobabilities (B, H, T, T) is overwritten.
void attention_standard_backward(float* dqkv, float* scratch_dprobabilities, const float* dout,
                                 const float* qkv, const float* probabilities, AttentionShape s);

// Writes the key and value heads of qkv (B, T, (H+2G)*D) at positions[b] .. positions[b]+T-1.
void kv_append(const KvCache& cache, const float* qkv, const std::int32_t* positions, AttentionShape s);

// out (B, T, H*D): query t of sequence b sees cache entries 0 .. positions[b]+t, which kv_append has written.
// How the cache is cut into blocks changes no bit.
void attention_cached(float* out, const float* qkv, const KvCache& cache, const std::int32_t* positions,
                      AttentionShape s);

}  // namespace cpu
}  // namespace kernels
