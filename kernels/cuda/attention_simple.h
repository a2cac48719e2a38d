// Attention of any type and head size: a warp a query, or a key. Correct first; attention_flash.cu is the
// fast one.
#pragma once
#include "kernels/attention.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/latent_attention.h"
#include "kernels/cuda/launch.h"

namespace kernels::cuda::simple {

void forward(const Context& context, Tensor out, float* lse, ConstTensor qkv, AttentionShape s,
             const AttentionMask& mask);
void forward_with_cache(const Context& context, Tensor out, ConstTensor qkv, const KvCache& cache,
                        const std::int32_t* positions, AttentionShape s, ConstTensor sinks);
// delta as row_products() leaves it.
void backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv, const float* lse,
              const float* delta, AttentionShape s, const AttentionMask& mask);

// products, shaped as lse: for each row of each head, the dot product of a and b.
void row_products(const Context& context, float* products, ConstTensor a, ConstTensor b, AttentionShape s,
                  const AttentionMask& mask);

// Latent attention (latent_attention.h): delta as row_products() leaves it of dout and out, heads of V.
void latent_forward(const Context& context, Tensor out, float* lse, ConstTensor q, ConstTensor kv,
                    LatentShape s);
void latent_backward(const Context& context, Tensor dq, Tensor dkv, ConstTensor dout, ConstTensor q,
                     ConstTensor kv, const float* lse, const float* delta, LatentShape s);
void latent_with_cache(const Context& context, Tensor out, ConstTensor absorbed, ConstTensor q,
                       const LatentCache& cache, const std::int32_t* positions, LatentShape s);

}  // namespace kernels::cuda::simple
