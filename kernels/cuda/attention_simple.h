// Attention of any type and head size: a warp a query, or a key. Correct first; attention_flash.cu is the
// fast one.
#pragma once
#include "kernels/attention.h"
#include "kernels/cuda/launch.h"

namespace kernels::cuda::simple {

void forward(const Context& context, Tensor out, float* lse, ConstTensor qkv, AttentionShape s);
void forward_with_cache(const Context& context, Tensor out, ConstTensor qkv, ConstTensor k_cache,
                        ConstTensor v_cache, const std::int32_t* positions, AttentionShape s,
                        std::int64_t capacity);
// delta as row_products() leaves it.
void backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv, const float* lse,
              const float* delta, AttentionShape s);

// products (B, H, T): of each head's row of a and b (B, T, H*D).
void row_products(const Context& context, float* products, ConstTensor a, ConstTensor b, AttentionShape s);

}  // namespace kernels::cuda::simple
