// Multi-head latent attention on the GPU; shapes and meanings as kernels/latent_attention.h. Tensors of an
// operation are of one type.
//
//   expanded   the kernels of attention_flash, whose tiles of keys are wider than those of values: bf16 and
//              fp16, N, P and V multiples of 8, N + P up to 192 and V up to 128. Everything else: one warp a
//              query (attention_simple).
//   absorbed   decoding on the cached latents (attention_latent_cached.cu): all heads are rows of tiles of
//              queries, so that a tile of the cache is loaded once for as many of them as a block has, as key
//              and as value. bf16 and fp16, L and P multiples of 8, L up to 512 and L + P up to 576.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/latent_attention.h"

namespace kernels::cuda {

// Rotates the last P elements of each head of q, and the keys, columns of rows of key_stride elements, in
// place; kv's copies of the key are written, where it is not null. positions (B) may be null: zero.
void rope_latent_forward(const Context& context, Tensor q, Tensor key, std::int64_t key_stride, Tensor kv,
                         const float* table, const std::int32_t* positions, LatentShape s);
void rope_latent_backward(const Context& context, Tensor dq, Tensor dkey, ConstTensor dkv, const float* table,
                          LatentShape s);

void attention_latent_forward(const Context& context, Tensor out, float* lse, ConstTensor q, ConstTensor kv,
                              LatentShape s);
// As many floats of scratch as lse has.
void attention_latent_backward(const Context& context, Tensor dq, Tensor dkv, ConstTensor dout, ConstTensor q,
                               ConstTensor kv, ConstTensor out, const float* lse, LatentShape s);

// As kernels::cpu::LatentCache; rows (blocks, block_size, L + P).
struct LatentCache {
  Tensor rows;
  std::int64_t block_size = 0;
  const std::int32_t* block_table = nullptr;
  std::int64_t blocks_per_sequence = 1;

  std::int64_t capacity() const { return blocks_per_sequence * block_size; }  // tokens of a sequence
};

void latent_append(const Context& context, const LatentCache& cache, ConstTensor latent, ConstTensor key,
                   std::int64_t key_stride, const std::int32_t* positions, LatentShape s);
void attention_latent_cached(const Context& context, Tensor out, ConstTensor absorbed, ConstTensor q,
                             const LatentCache& cache, const std::int32_t* positions, LatentShape s);

}  // namespace kernels::cuda
