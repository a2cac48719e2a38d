// Where attention's operands lie: heads packed beside each other in a token's row, or a KV cache.
#pragma once
#include <bit>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/shared_tile.h"
#include "kernels/cuda/types.h"

namespace kernels::cuda {

// A call's sequences, heads and mask.
struct AttentionSizes {
  int T, H, G, D;
  float scale;  // of the scores
  bool causal;
  const std::int32_t* cu_seqlens;  // null: all sequences are of T tokens
  std::int64_t rows;               // of all sequences
  int window = 0, chunk = 0;       // as kernels::AttentionMask
  int alibi_power = 0;             // with ALiBi the heads, up to a power of two; else 0
  const void* sinks = nullptr;     // (H), null: there are none
  Type sinks_type = Type::f32;
  int V = D;                       // of a head's values, where they are not as wide as its keys

  // Whether causality alone decides which scores are added up: no window, chunks, ALiBi or sinks.
  bool is_plain() const { return window == 0 && chunk == 0 && alibi_power == 0 && sinks == nullptr; }
  // A head's sink, where there are sinks.
  CUDA_DEVICE float sink(int head) const {
    if (sinks_type == Type::bf16) return to_float(static_cast<const bf16*>(sinks)[head]);
    if (sinks_type == Type::f16) return to_float(static_cast<const f16*>(sinks)[head]);
    return static_cast<const float*>(sinks)[head];
  }
  // What a head's scores lose for each token of distance: kernels::AttentionMask::slope().
  CUDA_DEVICE float slope(int head) const {
    if (alibi_power == 0) return 0;
    const bool further = head >= alibi_power;
    const int step = further ? 2 * (head - alibi_power) + 1 : head + 1;
    return exp2f(-8.0f * static_cast<float>(step) /
                 static_cast<float>(further ? 2 * alibi_power : alibi_power));
  }
  CUDA_HOST_DEVICE std::int64_t first_row(int b) const {
    return cu_seqlens != nullptr ? cu_seqlens[b] : static_cast<std::int64_t>(b) * T;
  }
  CUDA_HOST_DEVICE int length(int b) const {
    return cu_seqlens != nullptr ? cu_seqlens[b + 1] - cu_seqlens[b] : T;
  }
  // Index of a query's number (lse, delta) for a head: (B, H, T), or (H, rows) where lengths differ.
  CUDA_HOST_DEVICE std::int64_t statistic(int b, int head, int t) const {
    return cu_seqlens != nullptr ? head * rows + cu_seqlens[b] + t
                                 : (static_cast<std::int64_t>(b) * H + head) * T + t;
  }
};
inline AttentionSizes sizes(AttentionShape s, const AttentionMask& mask = {}) {
  return {static_cast<int>(s.T),
          static_cast<int>(s.H),
          static_cast<int>(s.G),
          static_cast<int>(s.D),
          1 / std::sqrt(static_cast<float>(s.D)),
          mask.causal,
          mask.cu_seqlens,
          mask.cu_seqlens != nullptr ? mask.rows : s.B * s.T,
          static_cast<int>(s.mask.window),
          static_cast<int>(s.mask.chunk),
          s.mask.alibi ? static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(s.H))) : 0,
          mask.sinks.data,
          mask.sinks.type};
}

// Heads of packed rows.
template <class T>
struct Heads {
  T* data;
  std::int64_t row;  // elements from a token's row to the next
  int D;

  // The rows of one head, from row `first_row` on (counted over all sequences).
  CUDA_HOST_DEVICE Rows<T> of(std::int64_t first_row, int head) const {
    return {data + first_row * row + static_cast<std::int64_t>(head) * D, row};
  }
};

// The heads from `first` on of packed rows of `heads` heads.
template <class T>
Heads<T> packed_heads(T* rows, std::int64_t heads, std::int64_t first, AttentionShape s) {
  return {rows + first * s.D, heads * s.D, static_cast<int>(s.D)};
}

// Keys or values of one head of one sequence.
template <class T>
struct KeyRows {
  T* first;          // of token 0, or of block 0
  std::int64_t row;  // elements from a token to the next
  const std::int32_t* blocks;
  std::int64_t block;  // elements from a block to the next
  Divisor block_size{};

  // Where token t's row begins; the rows up to the next multiple of kCacheRun follow at distances of `row`.
  CUDA_HOST_DEVICE T* at(int t) const {
    if (blocks == nullptr) return first + t * row;
    const std::uint32_t token = static_cast<std::uint32_t>(t), index = block_size.quotient(token);
    return first + blocks[index] * block +
           static_cast<std::int64_t>(token - index * block_size.divisor()) * row;
  }
};

// Keys and values of all heads and sequences: of packed rows, or of a cache.
template <class T>
struct KeyHeads {
  T *keys, *values;
  std::int64_t sequence, head, row;  // elements from one to the next; of blocks: `sequence` is a block
  const std::int32_t* cu_seqlens = nullptr;
  const std::int32_t* block_table = nullptr;
  std::int64_t blocks_per_sequence = 0;
  Divisor block_size{};

  CUDA_HOST_DEVICE KeyRows<T> keys_of(int b, int group) const { return of(keys, b, group); }
  CUDA_HOST_DEVICE KeyRows<T> values_of(int b, int group) const { return of(values, b, group); }
  CUDA_HOST_DEVICE KeyRows<T> of(T* data, int b, int group) const {
    T* const first = data + group * head;
    if (block_table != nullptr)
      return {first, row, block_table + b * blocks_per_sequence, sequence, block_size};
    return {first + (cu_seqlens != nullptr ? cu_seqlens[b] * row : b * sequence), row, nullptr, 0, {}};
  }
};

// For packed rows of (H + 2G) D.
template <class T>
KeyHeads<T> packed_keys(T* rows, AttentionShape s, const AttentionMask& mask = {}) {
  const std::int64_t width = (s.H + 2 * s.G) * s.D;
  return {.keys = rows + s.H * s.D,
          .values = rows + (s.H + s.G) * s.D,
          .sequence = s.T * width,
          .head = s.D,
          .row = width,
          .cu_seqlens = mask.cu_seqlens};
}
template <class T>
KeyHeads<T> cached_keys(const KvCache& cache, AttentionShape s) {
  return {.keys = cache.k.as<T>(),
          .values = cache.v.as<T>(),
          .sequence = s.G * cache.block_size * s.D,
          .head = cache.block_size * s.D,
          .row = s.D,
          .block_table = cache.block_table,
          .blocks_per_sequence = cache.blocks_per_sequence,
          .block_size = Divisor(static_cast<std::uint32_t>(cache.block_size))};
}

// The scales of an e4m3 cache: scores are multiplied by the keys' scale, and output by the values'.
struct KvScales {
  const float *k = nullptr, *v = nullptr;  // (G)

  CUDA_HOST_DEVICE float of_keys(int group) const { return k != nullptr ? k[group] : 1.0f; }
  CUDA_HOST_DEVICE float of_values(int group) const { return v != nullptr ? v[group] : 1.0f; }
};

// Calls body(K{}) with the type of a cache's elements; Own is the queries'.
template <class Own, class Body>
void with_cached_type(const KvCache& cache, const Body& body) {
  if (cache.is_fp8())
    body(e4m3{});
  else
    body(Own{});
}

// KeysOf: Heads, or another type that says where a head's keys lie.
template <class T, template <class> class KeysOf = Heads>
struct BackwardArguments {
  Heads<const T> q;
  KeysOf<const T> k;
  Heads<const T> v, dout;
  Heads<T> dq;
  KeysOf<T> dk;
  Heads<T> dv;
  const float *lse, *delta;  // as AttentionSizes::statistic() has it
  AttentionSizes s;
};
// qkv and dqkv are packed rows of (H + 2G) D, queries before keys before values; dout rows of H D.
template <class T>
BackwardArguments<T> backward_arguments(T* dqkv, const T* dout, const T* qkv, const float* lse,
                                        const float* delta, AttentionShape s, const AttentionMask& mask) {
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
          sizes(s, mask)};
}

}  // namespace kernels::cuda
