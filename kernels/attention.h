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

// Which keys a query sees, and what is added to its scores. Every attention kernel reads it.
struct AttentionMask {
  std::int64_t window = 0;  // keys that a query sees, its own included; 0: all before it
  std::int64_t chunk = 0;   // a query sees the keys of its own segment of so many tokens; 0: of all
  // ALiBi (Press, Smith, Lewis 2022, arXiv 2108.12409): a head's slope times the key's distance is
  // subtracted.
  bool alibi = false;
  // Scores become cap tanh(score / cap) (Gemma team 2024, arXiv 2408.00118); 0: no cap. Standard attention
  // does not apply it.
  float cap = 0;

  // The first key that the query at a position sees; it never decreases with the position.
  std::int64_t first_key(std::int64_t position) const {
    if (chunk > 0) return position / chunk * chunk;
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  bool hides_early_keys() const { return window > 0 || chunk > 0; }
  // For head h of H: 2^(-8 i / n), i = 1 .. n, for the n heads up to a power of two, and every other slope of
  // twice as many heads for the rest (as the authors' code,
  // github.com/ofirpress/attention_with_linear_biases).
  float slope(std::int64_t h, std::int64_t H) const;
};

struct AttentionShape {
  std::int64_t B, T, H, G, D;
  AttentionMask mask{};
  // (H): each head's attention sink, a learned score that takes part in the softmax of every row but has no
  // value (gpt-oss, arXiv 2508.10925); null: there are none.
  const float* sinks = nullptr;
};

namespace cpu {

// out (B, T, H*D); lse (B, H, T) natural-log sum of exponentials of the scaled scores, may be null.
void attention_flash_forward(float* out, float* lse, const float* qkv, AttentionShape s);

// dqkv (B, T, (H+2G)*D) = gradient (overwritten).
void attention_flash_backward(float* dqkv, const float* dout, const float* qkv, const float* out,
                              const float* lse, AttentionShape s);

// dsinks (H) += gradient of s.sinks; out and lse are attention_flash_forward's.
void attention_sinks_backward(float* dsinks, const float* dout, const float* out, const float* lse,
                              AttentionShape s);

// probabilities (B, H, T, T): softmax of the masked scores, zero where the mask hides a key.
void attention_standard_forward(float* out, float* probabilities, const float* qkv, AttentionShape s);

// scratch_dprobabilities (B, H, T, T) is overwritten; dsinks (H) += the gradient of the sinks, or null.
void attention_standard_backward(float* dqkv, float* scratch_dprobabilities, const float* dout,
                                 const float* qkv, const float* probabilities, AttentionShape s,
                                 float* dsinks = nullptr);

// Writes the key and value heads of qkv (B, T, (H+2G)*D) at positions[b] .. positions[b]+T-1.
void kv_append(const KvCache& cache, const float* qkv, const std::int32_t* positions, AttentionShape s);

// out (B, T, H*D): query t of sequence b sees the cache entries up to positions[b]+t, from the first that
// the mask allows. kv_append has written them.
// Where a contiguous cache is shorter than the sequence, new tokens come one at a time, or all from position
// 0. The result has the same bits however the cache is cut into blocks.
void attention_cached(float* out, const float* qkv, const KvCache& cache, const std::int32_t* positions,
                      AttentionShape s);

}  // namespace cpu
}  // namespace kernels
