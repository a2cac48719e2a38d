// Where attention's operands lie: heads packed beside each other in a token's row, or a KV cache.
#pragma once
#include "kernels/attention.h"
#include "kernels/cuda/types.h"

namespace kernels::cuda {

// Heads of an operand: element (b, head, t, d) is data[b * batch + head * head_stride + t * row + d].
template <class T>
struct Heads {
  T* data;
  std::int64_t batch, head_stride, row;

  CUDA_HOST_DEVICE T* at(std::int64_t b, std::int64_t head, std::int64_t t) const {
    return data + b * batch + head * head_stride + t * row;
  }
};

// The heads from `first` on of packed rows of `heads` heads.
template <class T>
Heads<T> packed_heads(T* rows, std::int64_t heads, std::int64_t first, AttentionShape s) {
  return {rows + first * s.D, s.T * heads * s.D, s.D, heads * s.D};
}
template <class T>
Heads<T> cache_heads(T* cache, std::int64_t capacity, AttentionShape s) {
  return {cache, s.G * capacity * s.D, capacity * s.D, s.D};
}

struct AttentionSizes {
  int T, H, G, D;
  float scale;  // of the scores
};

}  // namespace kernels::cuda
