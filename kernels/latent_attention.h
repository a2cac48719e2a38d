// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), causal, scale 1/sqrt(N + P).
//   attention_latent_*        keys and values expanded for each head, as flash attention
//                             (kernels/attention.h)
//   absorb_*, attention_latent_cached   decoding on the latents themselves: queries are multiplied by the
//                             keys' up-projection, attention's output by the values'
// H heads; N elements of a query and key are not rotated, P are; values have V; latents have L. A query is
// (N, P) of a head. Expanded keys and values are `up` (B*T, H, N + V), the up-projection's rows, and behind
// it `rotary` (B*T, H, P), the one rotated key of a token for each head.
#pragma once
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/quantised.h"
#include "kernels/strided_rows.h"

namespace kernels {

struct LatentShape {
  std::int64_t B, T, H, N, P, V, L;
  AttentionMask mask{};

  std::int64_t query() const { return N + P; }
  std::int64_t expanded() const { return H * (N + P + V); }  // of a token
  std::int64_t cached() const { return L + P; }
};

namespace cpu {

// Rotates the last P elements of each head of q (B, T, H*(N+P)), and key (B*T, P), in place; kv's copies of
// the key are written, where it is not null. table: kernels/rope.h, of D = P. positions (B): where each
// sequence's new tokens start; null means zero.
void rope_latent_forward(float* q, StridedRows<float> key, float* kv, const float* table,
                         const std::int32_t* positions, LatentShape s);

// dq in place; dkey (B*T, P) = the transposed rotation of the sum of dkv's copies over heads.
void rope_latent_backward(float* dq, float* dkey, const float* dkv, const float* table, LatentShape s);

// out (B, T, H*V); lse (B, H, T) may be null.
void attention_latent_forward(float* out, float* lse, const float* q, const float* kv, LatentShape s);

// dq and dkv, as q and kv, are overwritten.
void attention_latent_backward(float* dq, float* dkv, const float* dout, const float* q, const float* kv,
                               const float* out, const float* lse, LatentShape s);

// Where a sequence's latents lie: tokens [i * block_size, (i + 1) * block_size) of sequence b in block
// block_table[b * blocks_per_sequence + i]; without a table there is one block a sequence.
struct LatentCache {
  float* rows = nullptr;  // (blocks, block_size, L + P)
  std::int64_t block_size = 0;
  const std::int32_t* block_table = nullptr;
  std::int64_t blocks_per_sequence = 1;

  float* row(std::int64_t b, std::int64_t t, std::int64_t width) const {
    const std::int64_t block = block_table ? block_table[b * blocks_per_sequence + t / block_size] : b;
    return rows + (block * block_size + t % block_size) * width;
  }
};

// Writes latent (B*T, L) and the rotated key at positions[b] .. positions[b]+T-1.
void latent_append(const LatentCache& cache, const float* latent, StridedRows<const float> key,
                   const std::int32_t* positions, LatentShape s);

// up_weight (H, N + V, L). out (B*T, H*L) = each head's unrotated query times its keys' rows.
void absorb_keys(float* out, const float* q, const float* up_weight, LatentShape s);
// out (B*T, H*V) = attended (B*T, H*L) times each head's values' rows, transposed.
void absorb_values(float* out, const float* attended, const float* up_weight, LatentShape s);
// The same where up_weight (H * (N + V), L) is in codes: its rows are widened to fp32 on the way. Those of
// values are multiplied in codes, by activations rounded as in quantised.h, where tokens are few and the rows
// of each head are whole tiles.
void absorb_keys(float* out, const float* q, QuantisedWeight up_weight, LatentShape s);
void absorb_values(float* out, const float* attended, QuantisedWeight up_weight, LatentShape s);

// out (B*T, H*L): query t of sequence b, absorbed (B*T, H*L) and the rotated part of q, sees the cache's
// entries up to positions[b]+t.
void attention_latent_cached(float* out, const float* absorbed, const float* q, const LatentCache& cache,
                             const std::int32_t* positions, LatentShape s);

}  // namespace cpu
}  // namespace kernels
