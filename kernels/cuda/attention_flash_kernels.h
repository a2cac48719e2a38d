// The kernels of FlashAttention-2 (Dao 2023, arXiv 2307.08691) with mma.sync, for sm_80 and later, for heads
// of packed rows, a cache, or latent attention (latent_arguments.h), whose keys are wider than values.
//
// A block is four warps. In forward and for dQ each warp has its own query rows and all warps share tiles of
// keys and values; for dK and dV each warp has 16 keys and all share tiles of queries. Scores never leave
// registers: an accumulator's layout is that of the next product's A operand.
#pragma once
#include <cmath>

#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/cached_tile.h"
#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda::flash {

inline constexpr int kThreads = 128;
inline constexpr int kWarpRows = 16;
inline constexpr int kQueries = kThreads / kWarp * kWarpRows;  // of a tile
inline constexpr int kResidentBlocks =
    3;  // whose shared memory, at head size 64, fills an A100's multiprocessor
inline constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

// T: bf16 or f16. Keys: KeyHeads of T or of e4m3, or any other type with keys_of() and values_of().
template <class T, class Keys>
struct ForwardArguments {
  Heads<const T> q;
  Keys kv;
  KvScales scales;
  Heads<T> out;
  float* lse;
  const std::int32_t* positions;  // of query 0 in each sequence; null: 0
  AttentionSizes s;
};

// Copies a tile of keys or values: 16-bit ones asynchronously, e4m3 through registers, where it is widened.
template <int D, class T, class Source>
CUDA_DEVICE void copy_keys_of(T* tile, const Source& source, int first, int rows, int columns) {
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

// Adds ALiBi's term to the scores of 16 queries from position `query` on and of keys from `key` on. The slope
// is in units of the scores before their scale.
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

// D and V: the widths of tiles of keys and of values. Shared memory: queries (64, D), keys (2, 64, D), values
// (2, 64, V). Grid: (tiles of queries, H, B). Masked: by windows, chunks, ALiBi or sinks.
template <int D, int V, class T, class Keys, bool Masked>
CUDA_KERNEL_RESIDENT(kThreads, (Masked || D > 128) ? 2 : kResidentBlocks)
flash_forward_kernel(ForwardArguments<T, Keys> a) {
  using Tile = SharedTile<D>;
  using ValueTile = SharedTile<V>;
  T* const q = shared_memory<T>();
  T* const k = q + Tile::elements(kQueries);
  T* const v = k + 2 * Tile::elements(kKeyTile);
  const AttentionSizes& s = a.s;
  const int batch = block_index().z, head = block_index().y, group = head / (s.H / s.G);
  // The longest tiles start first, so that only short ones are left at the end.
  const int first = (grid_size().x - 1 - block_index().x) * kQueries;
  const int length = s.length(batch);
  if (first >= length) return;
  const int begin = a.positions != nullptr ? a.positions[batch] : 0;
  const int queries = length - first < kQueries ? length - first : kQueries;
  QueryTile tile{first, queries, begin, begin + length, s.causal};
  if constexpr (Masked) tile.window = s.window, tile.chunk = s.chunk;
  const int tiles = tile.key_tiles(), first_tile = Masked ? tile.first_key_tile() : 0;

  const auto all_keys = a.kv.keys_of(batch, group);
  const auto all_values = a.kv.values_of(batch, group);
  const auto copy_keys = [&](int j) {
    if (j < tiles)
      copy_keys_of<D>(k + j % 2 * Tile::elements(kKeyTile), all_keys, j * kKeyTile, tile.keys - j * kKeyTile,
                      s.D);
    commit_copies();
  };
  const auto copy_values = [&](int j) {
    if (j < tiles)
      copy_keys_of<V>(v + j % 2 * ValueTile::elements(kKeyTile), all_values, j * kKeyTile,
                      tile.keys - j * kKeyTile, s.V);
    commit_copies();
  };
  copy_rows<D, kQueries>(q, a.q.of(s.first_row(batch), head), first, queries, s.D);
  copy_keys(first_tile);
  copy_values(first_tile);

  const float to_exponent = s.scale * kLog2e * a.scales.of_keys(group);
  float o[V / 8][4] = {};
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  if (Masked && s.sinks != nullptr) {
    highest[0] = highest[1] = s.sink(head) * kLog2e;
    sum[0] = sum[1] = lane_index() % 4 == 0 ? 1.0f : 0.0f;  // of the four lanes of a row
  }
  const float slope = Masked ? s.slope(head) * kLog2e / to_exponent : 0;
  const int row = warp_index() * kWarpRows;
  for (int j = first_tile; j < tiles; ++j) {
    const T* const keys = k + j % 2 * Tile::elements(kKeyTile);
    const T* const values = v + j % 2 * ValueTile::elements(kKeyTile);
    wait_for_copies<1>();  // of keys j; the values may be under way
    sync_block();
    copy_keys(j + 1);

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
    raise_and_exponentiate<V / 8>(score, highest, sum, o, to_exponent);

    wait_for_copies<1>();  // of values j; the next keys may be under way
    sync_block();
    copy_values(j + 1);
    multiply_scores<V>(o, score, values);
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
  store_rows<V>(a.out.of(s.first_row(batch) + first, head), row, queries, s.V, o, factor);
}

// The probability of an unscaled score: p = exp(scale * score - lse). Scaled, its gradient is p (dp - delta).
CUDA_DEVICE float probability(float score, float to_exponent, float lse_log2) {
  return exp2_fast(score * to_exponent - lse_log2);
}

// Q, the queries of a tile: as many as leave room in registers for their scores beside the sums of dK and dV.
template <int D>
inline constexpr int kBackwardQueries = D > 128 ? 32 : 64;

// Shared memory: keys (64, D) and values (64, V), queries (2, Q, D) and their dout (2, Q, V), then for each
// of two tiles of queries Q log-sum-exps (base 2) and Q deltas. Grid: (tiles of keys, G, B).
template <int D, int V, class T, template <class> class KeysOf, bool Masked>
CUDA_KERNEL(kThreads)
flash_backward_keys_kernel(BackwardArguments<T, KeysOf> a) {
  constexpr int kQ = kBackwardQueries<D>;
  using Tile = SharedTile<D>;
  using ValueTile = SharedTile<V>;
  T* const k = shared_memory<T>();
  T* const v = k + Tile::elements(kKeyTile);
  T* const q = v + ValueTile::elements(kKeyTile);
  T* const dout = q + 2 * Tile::elements(kQ);
  float* const statistics = reinterpret_cast<float*>(dout + 2 * ValueTile::elements(kQ));
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
      copy_rows<V, kQ>(dout + i % 2 * ValueTile::elements(kQ), a.dout.of(first_row, head), first,
                       length - first, s.V);
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
  copy_rows<V, kKeyTile>(v, a.v.of(first_row, group), first_key, keys, s.V);
  copy_queries(0);

  const float to_exponent = s.scale * kLog2e;
  float dk[D / 8][4] = {}, dv[V / 8][4] = {};
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
    const T* const gradients = dout + i % 2 * ValueTile::elements(kQ);
    // not_before(): with the widest keys no register is free to hold this address while scores are formed.
    const float* const lse = statistics + (D > 128 ? not_before(i) : i) % 2 * 2 * kQ;
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
    multiply_scores<V>(dv, p, gradients);
    float ds[kQ / 8][4];
    multiply_rows<V>(ds, v, row, gradients);
#pragma unroll
    for (int n = 0; n < kQ / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        ds[n][e] = p[n][e] * (ds[n][e] - delta[n * 8 + accumulator_place(lane_index(), e).column]);
    multiply_scores<D>(dk, ds, queries);
  }
  wait_for_copies<0>();
  store_rows<D>(a.dk.of(first_row + first_key, group), row, keys, s.D, dk, {s.scale, s.scale});
  store_rows<V>(a.dv.of(first_row + first_key, group), row, keys, s.V, dv, {1, 1});
}

// Shared memory: queries (64, D), dout (64, V), keys (2, 64, D) and values (2, 64, V). Grid: (tiles of
// queries, H, B).
template <int D, int V, class T, template <class> class KeysOf, bool Masked>
CUDA_KERNEL(kThreads)
flash_backward_queries_kernel(BackwardArguments<T, KeysOf> a) {
  constexpr int kQ = kQueries;
  using Tile = SharedTile<D>;
  using ValueTile = SharedTile<V>;
  T* const q = shared_memory<T>();
  T* const dout = q + Tile::elements(kQ);
  T* const k = dout + ValueTile::elements(kQ);
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
      const int key = j * kKeyTile;
      copy_rows<D, kKeyTile>(k + j % 2 * Tile::elements(kKeyTile), a.k.of(first_row, group), key,
                             length - key, s.D);
      copy_rows<V, kKeyTile>(v + j % 2 * ValueTile::elements(kKeyTile), a.v.of(first_row, group), key,
                             length - key, s.V);
    }
    commit_copies();
  };
  copy_rows<D, kQ>(q, a.q.of(first_row, head), first, queries, s.D);
  copy_rows<V, kQ>(dout, a.dout.of(first_row, head), first, queries, s.V);
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
    const T* const values = v + j % 2 * ValueTile::elements(kKeyTile);
    float p[kKeyTile / 8][4], ds[kKeyTile / 8][4];
    multiply_rows<D>(p, q, row, keys);
    if constexpr (Masked) add_distances(p, slope, first + row, j * kKeyTile);
    multiply_rows<V>(ds, dout, row, values);
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

// For a tile in shared memory, whose elements have 16 bits.
template <int D>
std::size_t tile_bytes(int rows) {
  return static_cast<std::size_t>(SharedTile<D>::elements(rows)) * size_of(Type::bf16);
}

// Attention of B sequences. D and V: widths of tiles that hold the heads' keys and values.
template <int D, int V, bool Masked, class T, class Keys>
void start_forward(const Context& context, const ForwardArguments<T, Keys>& arguments, std::int64_t B) {
  const AttentionSizes& s = arguments.s;
  start(context,
        {.grid = {static_cast<int>(ceil_div(s.T, kQueries)), s.H, static_cast<int>(B)},
         .threads = kThreads,
         .shared_bytes = tile_bytes<D>(kQueries + 2 * kKeyTile) + tile_bytes<V>(2 * kKeyTile)},
        flash_forward_kernel<D, V, T, Keys, Masked>, arguments);
}
template <int D, int V, bool Masked, class T, template <class> class KeysOf>
void start_backward(const Context& context, const BackwardArguments<T, KeysOf>& arguments, std::int64_t B) {
  const AttentionSizes& s = arguments.s;
  const int sequences = static_cast<int>(B);
  constexpr int kQ = kBackwardQueries<D>;
  start(context,
        {.grid = {static_cast<int>(ceil_div(s.T, kKeyTile)), s.G, sequences},
         .threads = kThreads,
         .shared_bytes =
             tile_bytes<D>(kKeyTile + 2 * kQ) + tile_bytes<V>(kKeyTile + 2 * kQ) + 4 * kQ * sizeof(float)},
        flash_backward_keys_kernel<D, V, T, KeysOf, Masked>, arguments);
  start(context,
        {.grid = {static_cast<int>(ceil_div(s.T, kQueries)), s.H, sequences},
         .threads = kThreads,
         .shared_bytes = tile_bytes<D>(kQueries + 2 * kKeyTile) + tile_bytes<V>(kQueries + 2 * kKeyTile)},
        flash_backward_queries_kernel<D, V, T, KeysOf, Masked>, arguments);
}

}  // namespace kernels::cuda::flash
