// Attention by products of packed tiles (packed_tile.h): what attention_flash_forward() and
// attention_flash_backward() of attention.h and bf16_rows.h do where the processor's tiles fit. Scores,
// softmax and all sums are fp32. In bf16, probabilities and gradients of scores are rounded before they are
// multiplied, as on GPUs (Dao et al. 2022, arXiv 2205.14135); in fp32 they are multiplied as
// matmul_packed.h says, as all else is.
#pragma once
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/types.h"

namespace kernels::cpu {

// Whether packed tiles do attention for `tokens` tokens of a sequence: the tiles that form products of T
// divide attention's 64 queries by 64 keys, as AMX's do, and the sequence is long enough. T: bf16 or float.
template <class T>
bool packs_attention(std::int64_t tokens);

// Shapes are attention.h's, but for the sinks (H), which are this argument, or null. A thread holds one tile
// of queries and what is packed for it.
template <class T>
void packed_attention_forward(T* out, float* lse, const T* qkv, AttentionShape s, const T* sinks);

// attention_cached() of attention.h, over all keys from the first that a query sees on.
void packed_attention_cached(float* out, const float* qkv, const KvCache& cache,
                             const std::int32_t* positions, AttentionShape s);

// A thread holds, of one key-value head, keys and values, packed, and their gradients in fp32: 14 T D bytes
// in bf16, 26 T D in fp32.
template <class T>
void packed_attention_backward(T* dqkv, const T* dout, const T* qkv, const T* out, const float* lse,
                               AttentionShape s);

}  // namespace kernels::cpu
