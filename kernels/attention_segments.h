// Causal attention where queries and keys are segments of a sequence: the share of a context-parallel rank.
// With n ranks, rank r has segments r and 2n - 1 - r of 2n (zigzag), one behind the other, so that all ranks
// see the same number of pairs. Scale 1/sqrt(D), grouped key/value heads, the masks of attention.h.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/attention.h"

namespace kernels {

// A rank's place among those that divide sequences.
struct ContextPart {
  std::int64_t ranks = 1, rank = 0;

  // Where row i of the `rows` that a rank has lies in the sequence.
  std::int64_t position(std::int64_t i, std::int64_t rows) const {
    const std::int64_t half = rows / 2;
    return i < half ? rank * half + i : (2 * ranks - 1 - rank) * half + (i - half);
  }
};

namespace cpu {

// Keys and values of a rank, and where their gradients go (null: nowhere): rows of a sequence are `stride`
// elements apart, sequences T rows; a row has G heads of keys, then G of values.
struct SegmentKeys {
  ContextPart part;
  const float* kv = nullptr;
  float* dkv = nullptr;
  std::int64_t stride = 0;
};

// Queries are those of qkv (B, T, (H + 2G) * D). out (B, T, H*D) and lse (B, H, T) over these keys alone: a
// query that sees none has zeros and -inf. lse may be null.
void attention_segments_forward(float* out, float* lse, const float* qkv, ContextPart queries,
                                std::span<const SegmentKeys> keys, AttentionShape s);

// Given out and lse over all keys there are: the queries' part of dqkv = (or +=) and dkv = of these keys'
// share.
void attention_segments_backward(float* dqkv, bool add_to_queries, const float* dout, const float* qkv,
                                 const float* out, const float* lse, ContextPart queries,
                                 std::span<const SegmentKeys> keys, AttentionShape s);

// out and lse over two sets of keys, from those over each.
void attention_merge(float* out, float* lse, const float* part, const float* part_lse, AttentionShape s);

}  // namespace cpu
}  // namespace kernels
