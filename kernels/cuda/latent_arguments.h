// Where latent attention's operands lie (kernels/latent_attention.h): a head's query or key may be in two
// places.
#pragma once
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/latent_attention.h"

namespace kernels::cuda {

// A head's elements: the first `split` in one place, the others in another. If `split` is a multiple of 8,
// each aligned group of eight lies in one of the two.
template <class T>
struct SplitRow {
  T *first, *second;
  int split;

  CUDA_HOST_DEVICE T* operator+(int d) const { return d < split ? first + d : second + (d - split); }
  CUDA_HOST_DEVICE T& operator[](int d) const { return *(*this + d); }
};

// A head's rows, as Rows.
template <class T>
struct SplitRows {
  T* first;
  std::int64_t stride;
  T* second;
  std::int64_t second_stride;
  int split;

  CUDA_HOST_DEVICE SplitRow<T> at(int row) const {
    return {first + row * stride, second + row * second_stride, split};
  }
};

// As Heads.
template <class T>
struct SplitHeads {
  Heads<T> first, second;
  int split;

  CUDA_HOST_DEVICE SplitRows<T> of(std::int64_t first_row, int head) const {
    const Rows<T> near = first.of(first_row, head), far = second.of(first_row, head);
    return {near.first, near.stride, far.first, far.stride, split};
  }
};

template <class T>
Heads<T> heads_of(T* rows, std::int64_t heads, std::int64_t width) {
  return {rows, heads * width, static_cast<int>(width)};
}

// Expanded keys and values: kv is (B*T, H, N + V), and behind it (B*T, H, P).
template <class T>
SplitHeads<T> latent_keys(T* kv, LatentShape s) {
  return {heads_of(kv, s.H, s.N + s.V), heads_of(kv + s.B * s.T * s.H * (s.N + s.V), s.H, s.P),
          static_cast<int>(s.N)};
}
template <class T>
Heads<T> latent_values(T* kv, LatentShape s) {
  return heads_of(kv + s.N, s.H, s.N + s.V);
}

// As KeyHeads, where each query head has keys and values of its own.
template <class T>
struct LatentKeyHeads {
  SplitHeads<T> keys;
  Heads<T> values;
  std::int64_t sequence;  // rows from one to the next

  CUDA_HOST_DEVICE SplitRows<T> keys_of(int b, int head) const { return keys.of(b * sequence, head); }
  CUDA_HOST_DEVICE Rows<T> values_of(int b, int head) const { return values.of(b * sequence, head); }
};
template <class T>
LatentKeyHeads<T> latent_key_heads(T* kv, LatentShape s) {
  return {latent_keys(kv, s), latent_values(kv, s), s.T};
}

// The sizes of attention to expanded keys and values.
inline AttentionSizes latent_sizes(LatentShape s) {
  AttentionSizes sizes_of = sizes({s.B, s.T, s.H, s.H, s.query(), s.mask});
  sizes_of.V = static_cast<int>(s.V);
  return sizes_of;
}

// q and dq (B*T, H*(N+P)), dout (B*T, H*V); kv and dkv as latent_keys() and latent_values() have them.
template <class T>
BackwardArguments<T, SplitHeads> latent_backward_arguments(T* dq, T* dkv, const T* dout, const T* q,
                                                           const T* kv, const float* lse, const float* delta,
                                                           LatentShape s) {
  return {heads_of(q, s.H, s.query()),
          latent_keys(kv, s),
          latent_values(kv, s),
          heads_of(dout, s.H, s.V),
          heads_of(dq, s.H, s.query()),
          latent_keys(dkv, s),
          latent_values(dkv, s),
          lse,
          delta,
          latent_sizes(s)};
}

// Absorbed form. A query has two parts: its product with the keys' up-projection, (B*T, H*L), and its rotated
// part in q. A token's latent and rotary key are one row of the cache: this row is the key of all heads, and
// its first L columns are their value.
template <class T>
SplitHeads<const T> absorbed_queries(const T* absorbed, const T* q, LatentShape s) {
  return {heads_of(absorbed, s.H, s.L), heads_of(q + s.N, s.H, s.query()), static_cast<int>(s.L)};
}
template <class T>
KeyHeads<T> latent_rows(const LatentCache& cache, LatentShape s) {
  T* const rows = cache.rows.as<T>();
  return {.keys = rows,
          .values = rows,
          .sequence = cache.block_size * s.cached(),
          .head = 0,
          .row = s.cached(),
          .block_table = cache.block_table,
          .blocks_per_sequence = cache.blocks_per_sequence,
          .block_size = Divisor(static_cast<std::uint32_t>(cache.block_size))};
}
inline AttentionSizes absorbed_sizes(LatentShape s) {
  AttentionSizes sizes_of = latent_sizes(s);
  sizes_of.G = 1;
  sizes_of.D = static_cast<int>(s.cached());
  sizes_of.V = static_cast<int>(s.L);
  return sizes_of;
}

}  // namespace kernels::cuda
