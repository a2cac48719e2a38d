// Attention against a KV cache, for a few new tokens (decode, and the verification of drafted tokens). It is
// split over the keys, as in Flash-Decoding (Dao, Haziza, Massa, Sizov 2023). The last block of a head of
// keys to end merges the results of all its blocks.
#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "kernels/cuda/append.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/attention_simple.h"
#include "kernels/cuda/cached_tile.h"
#include "kernels/cuda/early_start.h"
#include "kernels/cuda/last_block.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRows = 16;         // of the tile of queries
constexpr int kStages = 3;        // keys and values of a run that are under way or in use, for each warp
constexpr int kBlocks = 2 * 132;  // to fill the largest GPU here
constexpr float kLog2e = 1.44269504088896341f;
static_assert(kKeyTile == kWarps * kCacheRun, "each warp has one run of every tile of keys");

// Row r of the tile is query r / heads, of query head r % heads of the group. T: the type of queries, bf16 or
// f16; K: the type of keys and values.
template <class T, class K>
struct DecodeArguments {
  Heads<const T> q;
  KeyHeads<const K> kv;
  KvScales scales;
  float* partial_out;  // (B, G, splits, 16, D): sums of exponentials times values
  float* partial_max;  // (B, G, splits, 16): base of the exponentials, in powers of two
  float* partial_sum;  // (B, G, splits, 16)
  const std::int32_t* positions;
  AttentionSizes s;
  T* out;         // (B, T, H*D)
  Divisor heads;  // of queries, that share a head of keys

  CUDA_DEVICE int query_of(int row) const {
    return static_cast<int>(heads.quotient(static_cast<std::uint32_t>(row)));
  }
  // The query head of a row of the tile.
  CUDA_DEVICE int head_of(int group, int row) const {
    const int count = static_cast<int>(heads.divisor());
    return group * count + row - query_of(row) * count;
  }
  CUDA_DEVICE T* out_of(int batch, int group, int row) const {
    return out + ((static_cast<std::int64_t>(batch) * s.T + query_of(row)) * s.H + head_of(group, row)) * s.D;
  }
};

// The base of a row's exponentials, and what its head's sink adds to their sum.
struct Sink {
  float most, sum;
};
template <class Arguments>
CUDA_DEVICE Sink with_sink(const Arguments& a, int group, int row, float most) {
  if (a.s.sinks == nullptr) return {most, 0};
  const float sink = a.s.sink(a.head_of(group, row)) * kLog2e, raised = fmaxf(most, sink);
  return {raised, exp2_fast(sink - raised)};
}

// How many blocks of each head of keys have ended; all 0 between kernels. One stream at a time uses it.
constexpr int kMostHeads = 1 << 16;
#ifdef __CUDACC__
__device__
#endif
    std::uint32_t blocks_that_ended[kMostHeads];

// Elements of a row that a thread merges.
constexpr int kColumns = 4;

// Merges the results of a head of keys' blocks into its output. weights: shared memory, (rows, splits).
template <int D, class T, class K>
CUDA_DEVICE void merge(const DecodeArguments<T, K>& a, int batch, int group, int splits, float* weights) {
  const AttentionSizes& s = a.s;
  const int rows = s.T * static_cast<int>(a.heads.divisor());
  const std::int64_t at = (static_cast<std::int64_t>(batch) * s.G + group) * grid_size().x * kRows;
  for (int row = warp_index(); row < rows; row += kWarps) {
    float most = -INFINITY, sum = 0;
    for (int split = lane_index(); split < splits; split += kWarp)
      most = fmaxf(most, a.partial_max[at + split * kRows + row]);
    const Sink sink = with_sink(a, group, row, warp_max(most));
    for (int split = lane_index(); split < splits; split += kWarp) {
      const float weight = exp2_fast(a.partial_max[at + split * kRows + row] - sink.most);
      weights[row * splits + split] = weight;
      sum += weight * a.partial_sum[at + split * kRows + row];
    }
    const float factor = a.scales.of_values(group) / (warp_sum(sum) + sink.sum);
    for (int split = lane_index(); split < splits; split += kWarp) weights[row * splits + split] *= factor;
  }
  sync_block();
  for (int i = thread_index() * kColumns; i < rows * D; i += kThreads * kColumns) {
    const int row = i / D, d = i % D;
    if (d >= s.D) continue;
    float total[kColumns] = {};
#pragma unroll 4
    for (int split = 0; split < splits; ++split) {
      float part[kColumns];
      load<kColumns>(part, a.partial_out + (at + split * kRows + row) * s.D + d);
      const float weight = weights[row * splits + split];
#pragma unroll
      for (int k = 0; k < kColumns; ++k) total[k] += weight * part[k];
    }
    store<kColumns>(a.out_of(batch, group, row) + d, total);
  }
}

// Blocks of a multiprocessor that registers are kept for; 0: the compiler decides. If it aims at four of
// these blocks, it spills, and shared memory has room for only three on an A100.
template <int D, class K, bool Masked>
inline constexpr int kResident = (sizeof(K) == 1 && (D == 96 || (Masked && D == 80))) ? 3 : 0;

// The stride of rows of outputs in shared memory: eight floats more than a row's elements, so that
// consecutive rows lie in different banks.
template <int D>
inline constexpr int kOutStride = D + 8;

// Each warp goes through its own runs of keys, without waiting for the others. Shared memory: kStages runs of
// keys and of values for each warp; in the end, in the same place, each warp's output (16, D), maxima and
// sums in fp32, then merge()'s weights. Grid: (splits, G, B).
template <int D, class T, class K, bool Masked>
CUDA_KERNEL_RESIDENT(kThreads, (kResident<D, K, Masked>))
decode_kernel(DecodeArguments<T, K> a) {
  let_next_kernel_begin();
  wait_for_kernel_before();
  using Tile = CachedTile<D, K>;
  const AttentionSizes& s = a.s;
  const int split = block_index().x, group = block_index().y, batch = block_index().z;
  const int position = a.positions[batch], rows = s.T * static_cast<int>(a.heads.divisor());

  // This lane's rows of queries, as fragments of the tile.
  std::uint32_t q[D / 16][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane_index() / 4 + half * 8;
    const T* const from =
        row < rows
            ? a.q.of(static_cast<std::int64_t>(batch) * s.T + a.query_of(row), a.head_of(group, row)).first
            : nullptr;
    load_query_fragments<D, K>(q, half, from, s.D);
  }

  QueryTile queries{0, s.T, position, position + s.T, true};
  if constexpr (Masked) queries.window = s.window, queries.chunk = s.chunk;
  const int first_tile = Masked ? queries.first_key_tile() : 0, tiles = queries.key_tiles() - first_tile;
  // Blocks that get a tile. The grid has as many as the cache has room for tiles.
  const int splits = tiles < grid_size().x ? tiles : grid_size().x;
  if (split >= splits) return;
  Part part = part_of(tiles, split, splits);
  part.begin += first_tile, part.end += first_tile;
  K* const runs = shared_memory<K>() + warp_index() * kStages * 2 * Tile::kElements;
  const KeyRows<const K> all_keys = a.kv.keys_of(batch, group), all_values = a.kv.values_of(batch, group);
  const int first_of_warp = warp_index() * kCacheRun;
  if ((part.end - 1) * kKeyTile + first_of_warp >= queries.keys) --part.end;  // the last tile's has no key

  const auto copy_run = [&](int j) {
    if (j < part.end) {
      K* const to = runs + (j - part.begin) % kStages * 2 * Tile::kElements;
      const int key = j * kKeyTile + first_of_warp;
      copy_cached_run<D>(to, all_keys, key, queries.keys - key, s.D);
      copy_cached_run<D>(to + Tile::kElements, all_values, key, queries.keys - key, s.D);
    }
    commit_copies();
  };
  // Fetching code that runs once takes time: there is as little of it as registers allow.
#pragma unroll(sizeof(K) == 1 ? kStages - 1 : 1)
  for (int stage = 0; stage < kStages - 1; ++stage) copy_run(part.begin + stage);

  const float to_exponent = s.scale * kLog2e * a.scales.of_keys(group);
  float o[D / 8][4] = {};
  float slopes[2] = {};  // of the heads of this lane's rows, as the scores are before their scale
  if constexpr (Masked)
    for (int half = 0; half < 2; ++half)
      slopes[half] = s.slope(a.head_of(group, lane_index() / 4 + half * 8)) * kLog2e / to_exponent;
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int j = part.begin; j < part.end; ++j) {
    wait_for_copies<kStages - 2>();
    sync_warp();  // run j has arrived, and all lanes are done with the memory of run j - 1
    copy_run(j + kStages - 1);
    const K* const keys = runs + (j - part.begin) % kStages * 2 * Tile::kElements;
    float score[kCacheRun / 8][4];
    multiply_cached_keys<D, T>(score, q, keys);
    if (Masked && s.alibi_power > 0) {
#pragma unroll
      for (int n = 0; n < kCacheRun / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = accumulator_place(lane_index(), i);
          const int key = j * kKeyTile + first_of_warp + n * 8 + place.column;
          score[n][i] += slopes[i / 2] * static_cast<float>(key - position - a.query_of(place.row));
        }
    }
    if (queries.needs_mask(j)) {
#pragma unroll
      for (int n = 0; n < kCacheRun / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = accumulator_place(lane_index(), i);
          const int key = j * kKeyTile + first_of_warp + n * 8 + place.column;
          if (!queries.sees(a.query_of(place.row), key)) score[n][i] = -INFINITY;
        }
    }
    raise_and_exponentiate<D / 8>(score, highest, sum, o, to_exponent);
    multiply_cached_values<D, T>(o, score, keys + Tile::kElements);
  }
  wait_for_copies<0>();
  sync_block();

  float* const warp_out = shared_memory<float>();  // (warps, 16, kOutStride<D>)
  float* const warp_max = warp_out + kWarps * kRows * kOutStride<D>;
  float* const warp_sum_of = warp_max + kWarps * kRows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    const int in_tile = lane_index() / 4 + half * 8, row = warp_index() * kRows + in_tile;
    if (in_tile >= rows) continue;
    if (lane_index() % 4 == 0) {
      warp_max[row] = highest[half];
      warp_sum_of[row] = sum[half];
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        warp_out[row * kOutStride<D> + Tile::column_of(n, accumulator_place(lane_index(), i).column)] =
            o[n][2 * half + i];
  }
  sync_block();
  const std::int64_t at = ((static_cast<std::int64_t>(batch) * s.G + group) * grid_size().x + split) * kRows;
  for (int i = thread_index() * kColumns; i < rows * D; i += kThreads * kColumns) {
    const int row = i / D, d = i % D;
    if (d >= s.D) continue;
    float most = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) most = fmaxf(most, warp_max[warp * kRows + row]);
    float total[kColumns] = {}, total_sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float weight = most == -INFINITY ? 0 : exp2_fast(warp_max[warp * kRows + row] - most);
      float of_warp[kColumns];
      load<kColumns>(of_warp, warp_out + (warp * kRows + row) * kOutStride<D> + d);
#pragma unroll
      for (int k = 0; k < kColumns; ++k) total[k] += weight * of_warp[k];
      total_sum += weight * warp_sum_of[warp * kRows + row];
    }
    if (splits == 1) {  // nothing to merge
      const Sink sink = with_sink(a, group, row, most);
      const float factor = exp2_fast(most - sink.most) * a.scales.of_values(group) /
                           (exp2_fast(most - sink.most) * total_sum + sink.sum);
#pragma unroll
      for (int k = 0; k < kColumns; ++k) total[k] *= factor;
      store<kColumns>(a.out_of(batch, group, row) + d, total);
      continue;
    }
    store<kColumns>(a.partial_out + (at + row) * s.D + d, total);
    if (d == 0) {
      a.partial_max[at + row] = most;
      a.partial_sum[at + row] = total_sum;
    }
  }
  if (splits == 1) return;
  if (ends_last(blocks_that_ended + static_cast<std::int64_t>(batch) * s.G + group, splits))
    merge<D>(a, batch, group, splits, warp_out);
}

// A block a token.
template <int Width, class T, class K>
CUDA_KERNEL(kThreads)
kv_append_kernel(AppendArguments<T, K> a) {
  let_next_kernel_begin();
  wait_for_kernel_before();
  const AttentionSizes& s = a.s;
  const int token = block_index().x, b = token / s.T, position = a.positions[b] + token % s.T;
  const T* const keys = a.qkv + (static_cast<std::int64_t>(token) * (s.H + 2 * s.G) + s.H) * s.D;
  for (int i = thread_index() * Width; i < 2 * s.G * s.D; i += block_size() * Width) {
    float x[Width];
    load<Width>(x, keys + i);
    store_cached(a, b, i / s.D, position, i % s.D, x);
  }
}

// A block a token; a thread takes Width elements of the first half of a head, and the elements at the same
// place in the second half: these pairs rotate together.
template <int Width, class T, class K>
CUDA_KERNEL(kThreads)
rope_kv_append_kernel(AppendArguments<T, K> a) {
  let_next_kernel_begin();
  wait_for_kernel_before();
  const AttentionSizes& s = a.s;
  const int token = block_index().x, b = token / s.T, position = a.positions[b] + token % s.T;
  const int half = s.D / 2, parts = half / Width, heads = s.H + 2 * s.G;
  T* const row = a.qkv + static_cast<std::int64_t>(token) * heads * s.D;
  const float* const angles = a.table + static_cast<std::int64_t>(position) * s.D;
  for (int i = thread_index(); i < heads * parts; i += block_size()) {
    const int head = i / parts, d = i % parts * Width;
    T* const first = row + head * s.D + d;
    float x[Width], y[Width];
    load<Width>(x, first);
    load<Width>(y, first + half);
    if (head < s.H + s.G) {
      rotate<T>(x, y, angles + d, half);
      store<Width>(first, x);
      store<Width>(first + half, y);
    }
    if (head >= s.H) {
      store_cached(a, b, head - s.H, position, d, x);
      store_cached(a, b, head - s.H, position, d + half, y);
    }
  }
}

// Row is T, or const T where nothing is rotated.
template <class T, class Row>
void append(const Context& context, Row* qkv, const KvCache& cache, const float* table,
            const std::int32_t* positions, AttentionShape s) {
  constexpr bool kRotates = !std::is_const_v<Row>;
  with_cached_type<T>(cache, [&]<class K>(K) {
    const AppendArguments<Row, K> arguments{
        qkv, cached_keys<K>(cache, s), {cache.k_scale, cache.v_scale}, table, positions, sizes(s)};
    const auto launch = [&]<int Width>() {
      const std::int64_t elements = kRotates ? (s.H + 2 * s.G) * s.D / 2 : 2 * s.G * s.D;
      const Launch shape{.grid = {static_cast<int>(s.B * s.T), 1, 1},
                         .threads = threads_for(ceil_div(elements, Width), kThreads)};
      if constexpr (kRotates)
        start_early(context, shape, rope_kv_append_kernel<Width, Row, K>, arguments);
      else
        start_early(context, shape, kv_append_kernel<Width, Row, K>, arguments);
    };
    constexpr int kWidth = 8;
    const std::int64_t contiguous = kRotates ? s.D / 2 : s.D;
    contiguous % kWidth == 0 ? launch.template operator()<kWidth>() : launch.template operator()<1>();
  });
}

template <int D, class T, class K>
void decode(const Context& context, Tensor out, ConstTensor qkv, const KvCache& cache,
            const std::int32_t* positions, AttentionShape s, ConstTensor sinks) {
  const std::int64_t groups = s.B * s.G;
  if (groups > kMostHeads)
    throw CudaError("attention against a cache takes at most " + std::to_string(kMostHeads) +
                    " heads of keys of all sequences, not " + std::to_string(groups));
  const int splits =
      static_cast<int>(std::clamp<std::int64_t>(kBlocks / groups, 1, ceil_div(cache.capacity(), kKeyTile)));
  const std::int64_t rows = groups * splits * kRows;
  float* const partial_out = context.scratch_for<float>(rows * (s.D + 2));
  const DecodeArguments<T, K> arguments{packed_heads(qkv.as<T>(), s.H + 2 * s.G, 0, s),
                                        cached_keys<const K>(cache, s),
                                        {cache.k_scale, cache.v_scale},
                                        partial_out,
                                        partial_out + rows * s.D,
                                        partial_out + rows * (s.D + 1),
                                        positions,
                                        sizes(s, {.sinks = sinks}),
                                        out.as<T>(),
                                        Divisor(static_cast<std::uint32_t>(s.H / s.G))};
  constexpr std::size_t kRuns = kWarps * kStages * 2 * CachedTile<D, K>::kElements * sizeof(K),
                        kOutputs = kWarps * kRows * (kOutStride<D> + 2) * sizeof(float);
  start_early(
      context,
      {.grid = {splits, static_cast<int>(s.G), static_cast<int>(s.B)},
       .threads = kThreads,
       .shared_bytes = std::max({kRuns, kOutputs, kRows * static_cast<std::size_t>(splits) * sizeof(float)})},
      arguments.s.is_plain() ? decode_kernel<D, T, K, false> : decode_kernel<D, T, K, true>, arguments);
}

}  // namespace

void kv_append(const Context& context, const KvCache& cache, ConstTensor qkv, const std::int32_t* positions,
               AttentionShape s) {
  with_type(qkv.type, [&]<class T>(T) { append<T>(context, qkv.as<T>(), cache, nullptr, positions, s); });
}

void rope_kv_append(const Context& context, Tensor qkv, const KvCache& cache, const float* table,
                    const std::int32_t* positions, AttentionShape s) {
  with_type(qkv.type, [&]<class T>(T) { append<T>(context, qkv.as<T>(), cache, table, positions, s); });
}

void attention_cached(const Context& context, Tensor out, ConstTensor qkv, const KvCache& cache,
                      const std::int32_t* positions, AttentionShape s, ConstTensor sinks) {
  if (!flash_takes(qkv.type, s.D))
    return simple::forward_with_cache(context, out, qkv, cache, positions, s, sinks);
  // Copies are of 16 bytes, but the length of a row of e4m3 may be a multiple of only 8.
  if (s.T * s.H / s.G > kRows || (cache.is_fp8() && s.D % 16 != 0))
    return attention_flash_with_cache(context, out, qkv, cache, positions, s, sinks);
  with_16_bit_type(qkv.type, [&]<class T>(T) {
    with_cached_type<T>(cache, [&]<class K>(K) {
      with_head_size(s.D, [&]<int D>() { decode<D, T, K>(context, out, qkv, cache, positions, s, sinks); });
    });
  });
}

}  // namespace kernels::cuda
