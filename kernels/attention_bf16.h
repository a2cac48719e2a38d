// Attention in bf16 by tiles of bf16 products: what attention_flash_forward() and attention_flash_backward()
// of bf16_rows.h do where the processor's tiles fit. Probabilities and gradients of scores are rounded to
// bf16 before they are multiplied, as on GPUs (Dao et al. 2022, arXiv 2205.14135); scores, softmax and all
// sums are fp32.
#pragma once
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/types.h"

namespace kernels::cpu {

// Whether tiles of the chosen products divide attention's 64 queries by 64 keys: AMX's do.
bool attention_takes_bf16_tiles();

// Shapes are attention.h's; sinks (H), or null. A thread holds one tile of queries and what is packed for it.
void attention_by_bf16_tiles(cuda::bf16* out, float* lse, const cuda::bf16* qkv, AttentionShape s,
                             const cuda::bf16* sinks);
// A thread holds, of one key-value head, keys and values, packed, and their gradients in fp32: 14 T D bytes.
void attention_backward_by_bf16_tiles(cuda::bf16* dqkv, const cuda::bf16* dout, const cuda::bf16* qkv,
                                      const cuda::bf16* out, const float* lse, AttentionShape s);

}  // namespace kernels::cpu
