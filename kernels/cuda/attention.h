// Attention with grouped key/value heads on the GPU; shapes and meanings as kernels/attention.h.
//
//   flash      bf16 and fp16, head sizes that are a multiple of 8 up to 128: tensor cores, tiles in shared
//              memory, online softmax (Dao et al. 2022, 2023).
//   simple     everything else: one warp a query (attention_simple.cu), for checks and for small models, not
//              for speed.
//   backward   one kernel by keys for dK and dV, one by queries for dQ. Each recomputes the scores, which
//              costs two products of seven more than a kernel that adds dQ up by atomics, and needs neither
//              atomics nor an fp32 dQ in memory: two runs are bit-equal.
//   cached     queries against a KV cache. For one token a sequence the cache is cut into parts for as many
//              blocks as fill the GPU, all query heads of a key/value head are one tile, so that keys and
//              values are read once, and the parts are merged by their log-sum-exp.
#pragma once
#include "kernels/attention.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// What a query sees, and how sequences lie behind each other.
struct AttentionMask {
  bool causal = true;  // the keys up to its own; else all of its sequence
  // Sequences of different lengths, packed without gaps: (B + 1), the first row of each and behind the last.
  // The shape's T is then the longest, and rows their sum. Null: B sequences of T.
  const std::int32_t* cu_seqlens = nullptr;
  std::int64_t rows = 0;
  // (H), as AttentionShape's, which are the CPU's and not looked at here; absent: there are none. Backward
  // passes need none: lse and out have them.
  ConstTensor sinks{};
};

// out (B, T, H*D), qkv (B, T, (H+2G)*D) of one type; lse (B, H, T) fp32, may be null. With different lengths:
// out (rows, H*D), qkv (rows, (H+2G)*D), lse (H, rows).
void attention_flash_forward(const Context& context, Tensor out, float* lse, ConstTensor qkv,
                             AttentionShape s, const AttentionMask& mask = {});

// dqkv is overwritten. Scratch: as many floats as lse has; they then hold each row's product of dout and out.
void attention_flash_backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv,
                              ConstTensor out, const float* lse, AttentionShape s,
                              const AttentionMask& mask = {});

// Softmax in place over the scores (B, H, T, T) of standard attention: of score / sqrt(D) up to the diagonal;
// zeros above it and where the shape's mask hides keys. sinks is (H), or absent.
void causal_softmax_forward(const Context& context, Tensor scores, AttentionShape s, ConstTensor sinks = {});
// dprobabilities (B, H, T, T) becomes the scores' gradient: p * (dp - sum(p * dp)) / sqrt(D). of_sinks
// (B, H, T), unless null, gets the gradient of each row's sink, whose probability is 1 - sum(p).
void causal_softmax_backward(const Context& context, Tensor dprobabilities, ConstTensor probabilities,
                             AttentionShape s, float* of_sinks = nullptr);

// dsinks (H) = the gradient of sinks; with `add`, += instead. Call it right after the backward pass of the
// same attention (flash or Hopper's): it reads what that pass left at the beginning of the scratch memory.
// lse is attention_flash_forward's.
void attention_sinks_backward(const Context& context, Tensor dsinks, bool add, ConstTensor sinks,
                              const float* lse, AttentionShape s);
// The same from the of_sinks that causal_softmax_backward() wrote.
void add_sinks_of_rows(const Context& context, Tensor dsinks, bool add, const float* of_sinks,
                       AttentionShape s);

// Writes the keys and values of qkv (B, T, (H+2G)*D) at positions[b] .. positions[b] + T - 1.
void kv_append(const Context& context, const KvCache& cache, ConstTensor qkv, const std::int32_t* positions,
               AttentionShape s);
// The same after rotating queries and keys in place (kernels/rope.h; table (P, D)). The result has the bits
// that rope() and kv_append() give, but takes one pass over qkv instead of two.
void rope_kv_append(const Context& context, Tensor qkv, const KvCache& cache, const float* table,
                    const std::int32_t* positions, AttentionShape s);
void attention_cached(const Context& context, Tensor out, ConstTensor qkv, const KvCache& cache,
                      const std::int32_t* positions, AttentionShape s, ConstTensor sinks = {});

// Whether the tensor-core kernels take this type and head size.
bool flash_takes(Type type, std::int64_t D);

}  // namespace kernels::cuda
