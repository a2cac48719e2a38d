// FlashAttention-2 (Dao 2023, arXiv 2307.08691) with mma.sync, for sm_80 and later.
//
// A block is four warps. In forward and for dQ each warp has its own query rows and all warps share tiles of
// keys and values; for dK and dV each warp has 16 keys and all share tiles of queries. Scores never leave
// registers: an accumulator's layout is that of the next product's A operand.
#include <cmath>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/attention_simple.h"
#include "kernels/cuda/cached_tile.h"
#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarpRows = 16;
constexpr int kBackwardQueries = 64;
constexpr int kResidentBlocks = 3;  // whose shared memory, at head size 64, fills an A100's multiprocessor
constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

// T: bf16 or f16; K: the type of keys and values, T or e4m3.
template <class T, class K>
struct ForwardArguments {
  Heads<const T> q;
  KeyHeads<const K> kv;
  KvScales scales;
  Heads<T> out;
  float* lse;
  const std::int32_t* positions;  // of query 0 in each sequence; null: 0
  AttentionSizes s;
};

// Copies a tile of keys or values: of 16 bits asynchronously, of e4m3 by way of registers.
template <int D, class T>
CUDA_DEVICE void copy_keys_of(T* tile, const KeyRows<const T>& source, int first, int rows, int columns) {
  copy_rows<D, kKeyTile>(tile, source, first, rows, columns);
}
template <int D, class T>
CUDA_DEVICE void copy_keys_of(T* tile, const KeyRows<const e4m3>& source, int first, int rows, int columns) {
  constexpr int kVectors = SharedTile<D>::kVectors;
  for (int i = thread_index(); i < kKeyTile * kVectors; i += kThreads) {
    const int row = i / kVectors, column = i % kVectors * 8;
    Pack<std::uint32_t, 4> wide{};
    if (row < rows && column < columns) {
      const auto bytes = *reinterpret_cast<const Pack<std::uint32_t, 2>*>(source.at(first + row) + column);
      widen_in_order<T>(wide.values[0], wide.values[1], bytes.values[0]);
      widen_in_order<T>(wide.values[2], wide.values[3], bytes.values[1]);
    }
    *reinterpret_cast<Pack<std::uint32_t, 4>*>(tile + SharedTile<D>::offset(row, column)) = wide;
  }
}

// Scores of 16 queries from position `query` on and of keys from `key` on: what ALiBi adds to them, in units
// of the scores before their scale.
template <int Tiles>
CUDA_DEVICE void add_distances(float (&score)[Tiles][4], float slope, int query, int key) {
  if (slope == 0) return;
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Place place = accumulator_place(lane_index(), i);
      score[n][i] += slope * static_cast<float>(key + n * 8 + place.column - query - place.row);
    }
}

// Shared memory: queries (64, D), keys and values (2, 64, D) each. Grid: (tiles of queries, H, B).
// Masked: by windows, chunks, ALiBi or sinks.
template <int D, class T, class K, bool Masked>
CUDA_KERNEL_RESIDENT(kThreads, Masked ? 2 : kResidentBlocks)
flash_forward_kernel(ForwardArguments<T, K> a) {
  constexpr int kQueries = kThreads / kWarp * kWarpRows;
  using Tile = SharedTile<D>;
  T* const q = shared_memory<T>();
  T* const k = q + Tile::elements(kQueries);
  T* const v = k + 2 * Tile::elements(kKeyTile);
  const AttentionSizes& s = a.s;
  const int batch = block_index().z, head = block_index().y, group = head / (s.H / s.G);
  // The longest tiles first: what is left over at the end is short.
  const int first = (grid_size().x - 1 - block_index().x) * kQueries;
  const int length = s.length(batch);
  if (first >= length) return;
  const int begin = a.positions != nullptr ? a.positions[batch] : 0;
  const int queries = length - first < kQueries ? length - first : kQueries;
  QueryTile tile{first, queries, begin, begin + length, s.causal};
  if constexpr (Masked) tile.window = s.window, tile.chunk = s.chunk;
  const int tiles = tile.key_tiles(), first_tile = Masked ? tile.first_key_tile() : 0;

  const KeyRows<const K> all_keys = a.kv.keys_of(batch, group), all_values = a.kv.values_of(batch, group);
  const auto copy_keys = [&](T* to, const KeyRows<const K>& from, int j) {
    if (j < tiles)
      copy_keys_of<D>(to + j % 2 * Tile::elements(kKeyTile), from, j * kKeyTile, tile.keys - j * kKeyTile,
                      s.D);
    commit_copies();
  };
  copy_rows<D, kQueries>(q, a.q.of(s.first_row(batch), head), first, queries, s.D);
  copy_keys(k, all_keys, first_tile);
  copy_keys(v, all_values, first_tile);

  const float to_exponent = s.scale * kLog2e * a.scales.of_keys(group);
  float o[D / 8][4] = {};
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  if (Masked && s.sinks != nullptr) {
    highest[0] = highest[1] = s.sinks[head] * kLog2e;
    sum[0] = sum[1] = lane_index() % 4 == 0 ? 1.0f : 0.0f;  // of the four lanes of a row
  }
  const float slope = Masked ? s.slope(head) * kLog2e / to_exponent : 0;
  const int row = warp_index() * kWarpRows;
  for (int j = first_tile; j < tiles; ++j) {
    const T* const keys = k + j % 2 * Tile::elements(kKeyTile);
    const T* const values = v + j % 2 * Tile::elements(kKeyTile);
    wait_for_copies<1>();  // of keys j; the values may be under way
    sync_block();
    copy_keys(k, all_keys, j + 1);

    float score[kKeyTile / 8][4];
    multiply_rows<D>(score, q, row, keys);
    if constexpr (Masked) add_distances(score, slope, begin + first + row, j * kKeyTile);
    if (tile.needs_mask(j)) {
#pragma unroll
      for (int n = 0; n < kKeyTile / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = accumulator_place(lane_index(), i);
          if (!tile.sees(first + row + place.row, j * kKeyTile + n * 8 + place.column))
            score[n][i] = -INFINITY;
        }
    }
    raise_and_exponentiate<D / 8>(score, highest, sum, o, to_exponent);

    wait_for_copies<1>();  // of values j; the next keys may be under way
    sync_block();
    copy_keys(v, all_values, j + 1);
    multiply_scores<D>(o, score, values);
  }
  wait_for_copies<0>();

  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    factor[half] = a.scales.of_values(group) / sum[half];
    const int r = row + lane_index() / 4 + half * 8;
    if (a.lse != nullptr && lane_index() % 4 == 0 && r < queries)
      a.lse[s.statistic(batch, head, first + r)] = highest[half] * kLn2 + logf(sum[half]);
  }
  store_rows<D>(a.out.of(s.first_row(batch) + first, head), row, queries, s.D, o, factor);
}

// The gradient of a score before its scale, and the probability: p = exp(score - lse), ds = p (dp - delta).
CUDA_DEVICE float probability(float score, float to_exponent, float lse_log2) {
  return exp2_fast(score * to_exponent - lse_log2);
}

// Shared memory: keys and values (64, D) each, queries and their dout (2, 64, D) each, then for each of two
// tiles of queries 64 log-sum-exps (base 2) and 64 deltas.
// Grid: (tiles of keys, G, B).
template <int D, class T, bool Masked>
CUDA_KERNEL(kThreads)
flash_backward_keys_kernel(BackwardArguments<T> a) {
  constexpr int kQ = kBackwardQueries;
  using Tile = SharedTile<D>;
  T* const k = shared_memory<T>();
  T* const v = k + Tile::elements(kKeyTile);
  T* const q = v + Tile::elements(kKeyTile);
  T* const dout = q + 2 * Tile::elements(kQ);
  float* const statistics = reinterpret_cast<float*>(dout + 2 * Tile::elements(kQ));
  const AttentionSizes& s = a.s;
  const int batch = block_index().z, group = block_index().y, heads = s.H / s.G;
  const int first_key =
      block_index().x *
      kKeyTile;  // under a causal mask the earliest keys have the most queries: they come first
  const int length = s.length(batch);
  if (first_key >= length) return;
  const std::int64_t first_row = s.first_row(batch);
  const int keys = length - first_key < kKeyTile ? length - first_key : kKeyTile;
  const int first_tile = first_query_tile(first_key, kQ, s.causal);
  const int end = Masked ? end_of_queries(first_key + keys - 1, length, s.window, s.chunk) : length;
  const int end_tile = (end + kQ - 1) / kQ;

  // A step is a tile of queries of a head, tile by tile, then head by head.
  const int steps = heads * (end_tile - first_tile);
  int next_head = group * heads, next_tile = first_tile;  // to be copied
  const auto copy_queries = [&](int i) {
    if (i < steps) {
      const int head = next_head, first = next_tile * kQ;
      if (++next_tile == end_tile) {
        next_tile = first_tile;
        ++next_head;
      }
      copy_rows<D, kQ>(q + i % 2 * Tile::elements(kQ), a.q.of(first_row, head), first, length - first, s.D);
      copy_rows<D, kQ>(dout + i % 2 * Tile::elements(kQ), a.dout.of(first_row, head), first, length - first,
                       s.D);
      for (int t = thread_index(); t < kQ; t += kThreads) {
        const std::int64_t at = s.statistic(batch, head, first + t);
        const bool valid = first + t < length;
        // Queries beyond the end get probability 0.
        statistics[i % 2 * 2 * kQ + t] = valid ? a.lse[at] * kLog2e : INFINITY;
        statistics[i % 2 * 2 * kQ + kQ + t] = valid ? a.delta[at] : 0;
      }
    }
    commit_copies();
  };
  copy_rows<D, kKeyTile>(k, a.k.of(first_row, group), first_key, keys, s.D);
  copy_rows<D, kKeyTile>(v, a.v.of(first_row, group), first_key, keys, s.D);
  copy_queries(0);

  const float to_exponent = s.scale * kLog2e;
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  const int row = warp_index() * kWarpRows;
  int end_of[2] = {};  // the queries that see this lane's keys
  if constexpr (Masked)
    for (int half = 0; half < 2; ++half)
      end_of[half] = end_of_queries(first_key + row + lane_index() / 4 + half * 8, length, s.window, s.chunk);
  int tile = first_tile, head = group * heads;
  for (int i = 0; i < steps; ++i) {
    wait_for_copies<0>();
    sync_block();  // step i has arrived, and all are done with the memory of step i - 1
    copy_queries(i + 1);
    const T* const queries = q + i % 2 * Tile::elements(kQ);
    const T* const gradients = dout + i % 2 * Tile::elements(kQ);
    const float* const lse = statistics + i % 2 * 2 * kQ;
    const float* const delta = lse + kQ;
    const int first = tile * kQ;
    const float slope = Masked ? s.slope(head) / s.scale : 0;
    if (++tile == end_tile) {
      tile = first_tile;
      ++head;
    }

    float p[kQ / 8][4];  // (keys, queries)
    multiply_rows<D>(p, k, row, queries);
#pragma unroll
    for (int n = 0; n < kQ / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Place place = accumulator_place(lane_index(), e);
        const int query = n * 8 + place.column;
        const int key = first_key + row + place.row;
        bool sees = !s.causal || key <= first + query;
        if constexpr (Masked) {
          sees = sees && first + query < end_of[e / 2];
          p[n][e] += slope * static_cast<float>(key - first - query);
        }
        p[n][e] = sees ? probability(p[n][e], to_exponent, lse[query]) : 0;
      }
    multiply_scores<D>(dv, p, gradients);
    float ds[kQ / 8][4];
    multiply_rows<D>(ds, v, row, gradients);
#pragma unroll
    for (int n = 0; n < kQ / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        ds[n][e] = p[n][e] * (ds[n][e] - delta[n * 8 + accumulator_place(lane_index(), e).column]);
    multiply_scores<D>(dk, ds, queries);
  }
  wait_for_copies<0>();
  store_rows<D>(a.dk.of(first_row + first_key, group), row, keys, s.D, dk, {s.scale, s.scale});
  store_rows<D>(a.dv.of(first_row + first_key, group), row, keys, s.D, dv, {1, 1});
}

// Shared memory: queries and dout (64, D) each, keys and values (2, 64, D) each. Grid: (tiles of queries, H,
// B).
template <int D, class T, bool Masked>
CUDA_KERNEL(kThreads)
flash_backward_queries_kernel(BackwardArguments<T> a) {
  constexpr int kQ = kBackwardQueries;
  using Tile = SharedTile<D>;
  T* const q = shared_memory<T>();
  T* const dout = q + Tile::elements(kQ);
  T* const k = dout + Tile::elements(kQ);
  T* const v = k + 2 * Tile::elements(kKeyTile);
  const AttentionSizes& s = a.s;
  const int batch = block_index().z, head = block_index().y, group = head / (s.H / s.G);
  const int first = (grid_size().x - 1 - block_index().x) * kQ;
  const int length = s.length(batch);
  if (first >= length) return;
  const std::int64_t first_row = s.first_row(batch);
  const int queries = length - first < kQ ? length - first : kQ;
  QueryTile tile{first, queries, 0, length, s.causal};
  if constexpr (Masked) tile.window = s.window, tile.chunk = s.chunk;
  const int tiles = tile.key_tiles(), first_tile = Masked ? tile.first_key_tile() : 0;

  const auto copy_keys = [&](int j) {
    if (j < tiles) {
      const int stage = j % 2 * Tile::elements(kKeyTile), key = j * kKeyTile;
      copy_rows<D, kKeyTile>(k + stage, a.k.of(first_row, group), key, length - key, s.D);
      copy_rows<D, kKeyTile>(v + stage, a.v.of(first_row, group), key, length - key, s.D);
    }
    commit_copies();
  };
  copy_rows<D, kQ>(q, a.q.of(first_row, head), first, queries, s.D);
  copy_rows<D, kQ>(dout, a.dout.of(first_row, head), first, queries, s.D);
  copy_keys(first_tile);

  const int row = warp_index() * kWarpRows;
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + lane_index() / 4 + half * 8;
    const std::int64_t at = s.statistic(batch, head, first + r);
    lse[half] = r < queries ? a.lse[at] * kLog2e : INFINITY;
    delta[half] = r < queries ? a.delta[at] : 0;
  }
  const float to_exponent = s.scale * kLog2e;
  const float slope = Masked ? s.slope(head) / s.scale : 0;
  float dq[D / 8][4] = {};
  for (int j = first_tile; j < tiles; ++j) {
    wait_for_copies<0>();
    sync_block();
    copy_keys(j + 1);
    const T* const keys = k + j % 2 * Tile::elements(kKeyTile);
    const T* const values = v + j % 2 * Tile::elements(kKeyTile);
    float p[kKeyTile / 8][4], ds[kKeyTile / 8][4];
    multiply_rows<D>(p, q, row, keys);
    if constexpr (Masked) add_distances(p, slope, first + row, j * kKeyTile);
    multiply_rows<D>(ds, dout, row, values);
    const bool masked = tile.needs_mask(j);
#pragma unroll
    for (int n = 0; n < kKeyTile / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Place place = accumulator_place(lane_index(), e);
        const bool sees = !masked || tile.sees(first + row + place.row, j * kKeyTile + n * 8 + place.column);
        const float weight = sees ? probability(p[n][e], to_exponent, lse[e / 2]) : 0;
        ds[n][e] = weight * (ds[n][e] - delta[e / 2]);
      }
    multiply_scores<D>(dq, ds, keys);
  }
  wait_for_copies<0>();
  store_rows<D>(a.dq.of(first_row + first, head), row, queries, s.D, dq, {s.scale, s.scale});
}

constexpr int kDeltaLanes = 16;  // of a row: 8 elements each

// products, as AttentionSizes::statistic() has it: of each head's row of a and b, with head sizes up to 128
// that are multiples of 8. Grid: (T / 8, H, B).
template <class T>
CUDA_KERNEL(kThreads)
row_products_kernel(float* products, Heads<const T> a, Heads<const T> b, AttentionSizes s) {
  const int batch = block_index().z, head = block_index().y, column = thread_index() % kDeltaLanes * 8;
  const int t = block_index().x * (kThreads / kDeltaLanes) + thread_index() / kDeltaLanes;
  float product = 0;
  if (t < s.length(batch) && column < s.D) {
    float x[8], y[8];
    load<8>(x, a.of(s.first_row(batch), head).at(t) + column);
    load<8>(y, b.of(s.first_row(batch), head).at(t) + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) product += x[i] * y[i];
  }
#pragma unroll
  for (int distance = kDeltaLanes / 2; distance > 0; distance /= 2) product += shuffle_xor(product, distance);
  if (t < s.length(batch) && column == 0) products[s.statistic(batch, head, t)] = product;
}

// For a tile in shared memory, whose elements have 16 bits.
template <int D>
std::size_t tile_bytes(int rows) {
  return static_cast<std::size_t>(SharedTile<D>::elements(rows)) * size_of(Type::bf16);
}

int query_tiles(std::int64_t T) {
  return static_cast<int>(ceil_div(T, 64));
}

template <class T, class K>
void forward(const Context& context, const ForwardArguments<T, K>& arguments, AttentionShape s) {
  with_head_size(s.D, [&]<int D>() {
    start(context,
          {.grid = {query_tiles(s.T), static_cast<int>(s.H), static_cast<int>(s.B)},
           .threads = kThreads,
           .shared_bytes = tile_bytes<D>(64 + 4 * kKeyTile)},
          arguments.s.is_plain() ? flash_forward_kernel<D, T, K, false> : flash_forward_kernel<D, T, K, true>,
          arguments);
  });
}

template <class T>
void backward(const Context& context, const BackwardArguments<T>& arguments, AttentionShape s) {
  with_head_size(s.D, [&]<int D>() {
    const int B = static_cast<int>(s.B);
    start(context,
          {.grid = {query_tiles(s.T), static_cast<int>(s.G), B},
           .threads = kThreads,
           .shared_bytes =
               tile_bytes<D>(2 * kKeyTile + 4 * kBackwardQueries) + 4 * kBackwardQueries * sizeof(float)},
          arguments.s.is_plain() ? flash_backward_keys_kernel<D, T, false>
                                 : flash_backward_keys_kernel<D, T, true>,
          arguments);
    start(context,
          {.grid = {query_tiles(s.T), static_cast<int>(s.H), B},
           .threads = kThreads,
           .shared_bytes = tile_bytes<D>(2 * kBackwardQueries + 4 * kKeyTile)},
          arguments.s.is_plain() ? flash_backward_queries_kernel<D, T, false>
                                 : flash_backward_queries_kernel<D, T, true>,
          arguments);
  });
}

}  // namespace

bool flash_takes(Type type, std::int64_t D) {
  return (type == Type::bf16 || type == Type::f16) && D % 8 == 0 && D <= 128;
}

void attention_flash_forward(const Context& context, Tensor out, float* lse, ConstTensor qkv,
                             AttentionShape s, const AttentionMask& mask) {
  if (!flash_takes(qkv.type, s.D)) return simple::forward(context, out, lse, qkv, s, mask);
  const std::int64_t packed = s.H + 2 * s.G;
  with_16_bit_type(qkv.type, [&]<class T>(T) {
    const T* const rows = qkv.as<T>();
    forward<T, T>(context,
                  {packed_heads(rows, packed, 0, s),
                   packed_keys(rows, s, mask),
                   {},
                   packed_heads(out.as<T>(), s.H, 0, s),
                   lse,
                   nullptr,
                   sizes(s, mask)},
                  s);
  });
}

void attention_flash_with_cache(const Context& context, Tensor out, ConstTensor qkv, const KvCache& cache,
                                const std::int32_t* positions, AttentionShape s) {
  with_16_bit_type(qkv.type, [&]<class T>(T) {
    with_cached_type<T>(cache, [&]<class K>(K) {
      forward<T, K>(context,
                    {packed_heads(qkv.as<T>(), s.H + 2 * s.G, 0, s),
                     cached_keys<const K>(cache, s),
                     {cache.k_scale, cache.v_scale},
                     packed_heads(out.as<T>(), s.H, 0, s),
                     nullptr,
                     positions,
                     sizes(s)},
                    s);
    });
  });
}

void attention_deltas(const Context& context, float* delta, ConstTensor dout, ConstTensor out,
                      AttentionShape s, const AttentionMask& mask) {
  if (!flash_takes(dout.type, s.D)) return simple::row_products(context, delta, dout, out, s, mask);
  with_16_bit_type(dout.type, [&]<class T>(T) {
    start(context,
          {.grid = {static_cast<int>(ceil_div(s.T, kThreads / kDeltaLanes)), static_cast<int>(s.H),
                    static_cast<int>(s.B)},
           .threads = kThreads},
          row_products_kernel<T>, delta, packed_heads(dout.as<T>(), s.H, 0, s),
          packed_heads(out.as<T>(), s.H, 0, s), sizes(s, mask));
  });
}

void attention_flash_backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv,
                              ConstTensor out, const float* lse, AttentionShape s,
                              const AttentionMask& mask) {
  float* const delta = context.scratch_for<float>((mask.cu_seqlens != nullptr ? mask.rows : s.B * s.T) * s.H);
  simple::row_products(context, delta, dout, out, s, mask);
  if (!flash_takes(qkv.type, s.D)) return simple::backward(context, dqkv, dout, qkv, lse, delta, s, mask);
  with_16_bit_type(qkv.type, [&]<class T>(T) {
    backward<T>(context, backward_arguments(dqkv.as<T>(), dout.as<T>(), qkv.as<T>(), lse, delta, s, mask), s);
  });
}

}  // namespace kernels::cuda
