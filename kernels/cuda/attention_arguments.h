// Where attention's operands lie: heads packed beside each other in a token's row, or a KV cache.
#pragma once
#include <cmath>

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
inline AttentionSizes sizes(AttentionShape s) {
  return {static_cast<int>(s.T), static_cast<int>(s.H), static_cast<int>(s.G), static_cast<int>(s.D),
          1 / std::sqrt(static_cast<float>(s.D))};
}

template <class T>
struct BackwardArguments {
  Heads<const T> q, k, v, dout;
  Heads<T> dq, dk, dv;
  const float *lse, *delta;  // (B, H, T)
  AttentionSizes s;

  CUDA_HOST_DEVICE std::int64_t statistic(int b, int head, int t) const {
    return (static_cast<std::int64_t>(b) * s.H + head) * s.T + t;
  }
};
// Of qkv and dqkv packed (B, T, (H + 2G) D), queries before keys before values; dout (B, T, H D).
template <class T>
BackwardArguments<T> backward_arguments(T* dqkv, const T* dout, const T* qkv, const float* lse,
                                        const float* delta, AttentionShape s) {
  const std::int64_t packed = s.H + 2 * s.G;
  return {packed_heads(qkv, packed, 0, s),
          packed_heads(qkv, packed, s.H, s),
          packed_heads(qkv, packed, s.H + s.G, s),
          packed_heads(dout, s.H, 0, s),
          packed_heads(dqkv, packed, 0, s),
          packed_heads(dqkv, packed, s.H, s),
          packed_heads(dqkv, packed, s.H + s.G, s),
          lse,
          delta,
          sizes(s)};
}

}  // namespace kernels::cuda
