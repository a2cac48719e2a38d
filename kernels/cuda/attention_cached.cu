// Attention against a KV cache. A few new tokens (decode, and the verification of drafted tokens): split over
// the keys, as Flash-Decoding (Dao, Haziza, Massa, Sizov 2023).
#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/attention_simple.h"
#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRows = 16;                     // of the tile of queries
constexpr int kWarpKeys = kKeyTile / kWarps;  // each warp has its share of every tile of keys
constexpr int kBlocks = 2 * 132;              // to fill the largest GPU here
constexpr float kLog2e = 1.44269504088896341f;

// The tile's row r is query r / heads of query head r % heads of the group.
struct DecodeArguments {
  Heads<const bf16> q, k, v;
  float* partial_out;  // (B, G, splits, 16, D): sums of exponentials times values
  float* partial_max;  // (B, G, splits, 16): base of the exponentials, in powers of two
  float* partial_sum;  // (B, G, splits, 16)
  const std::int32_t* positions;
  AttentionSizes s;
};

// Shared memory: queries (16, D), keys and values (2, 64, D) each; in the end, over the keys and values, each
// warp's output (16, D), maxima and sums in fp32. Grid: (splits, G, B).
template <int D>
CUDA_KERNEL(kThreads)
decode_kernel(DecodeArguments a) {
  using Tile = SharedTile<D>;
  bf16* const q = shared_memory<bf16>();
  bf16* const k = q + Tile::elements(kRows);
  bf16* const v = k + 2 * Tile::elements(kKeyTile);
  const AttentionSizes& s = a.s;
  const int split = block_index().x, group = block_index().y, batch = block_index().z, heads = s.H / s.G;
  const int position = a.positions[batch], rows = s.T * heads;
  const QueryTile queries{0, s.T, position, position + s.T, true};
  const Part part = part_of(queries.key_tiles(), split, grid_size().x);

  const auto copy_keys = [&](int j) {
    if (j < part.end) {
      const int stage = (j - part.begin) % 2 * Tile::elements(kKeyTile), key = j * kKeyTile;
      copy_tile<D, kKeyTile>(k + stage, a.k.at(batch, group, key), a.k.row, queries.keys - key, s.D);
      copy_tile<D, kKeyTile>(v + stage, a.v.at(batch, group, key), a.v.row, queries.keys - key, s.D);
    }
    commit_copies();
  };
  for (int i = thread_index(); i < kRows * Tile::kVectors; i += kThreads) {
    const int row = i / Tile::kVectors, column = i % Tile::kVectors * 8;
    const bool valid = row < rows && column < s.D;
    const bf16* const from =
        a.q.at(batch, group * heads + (valid ? row % heads : 0), valid ? row / heads : 0);
    copy_async(q + Tile::offset(row, column), from + (valid ? column : 0), valid);
  }
  copy_keys(part.begin);

  const float to_exponent = s.scale * kLog2e;
  const int first_key = warp_index() * kWarpKeys;
  float o[D / 8][4] = {};
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int j = part.begin; j < part.end; ++j) {
    wait_for_copies<0>();
    sync_block();
    copy_keys(j + 1);
    const int stage = (j - part.begin) % 2 * Tile::elements(kKeyTile);
    float score[kWarpKeys / 8][4];
    multiply_rows<D>(score, q, 0, k + stage + Tile::offset(first_key, 0));
    if (queries.needs_mask(j)) {
#pragma unroll
      for (int n = 0; n < kWarpKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = accumulator_place(lane_index(), i);
          const int key = j * kKeyTile + first_key + n * 8 + place.column;
          if (!queries.sees(place.row / heads, key)) score[n][i] = -INFINITY;
        }
    }
    raise_and_exponentiate<D / 8>(score, highest, sum, o, to_exponent);
    multiply_scores<D>(o, score, v + stage + Tile::offset(first_key, 0));
  }
  wait_for_copies<0>();
  sync_block();

  float* const warp_out = reinterpret_cast<float*>(k);  // (warps, 16, D)
  float* const warp_max = warp_out + kWarps * kRows * D;
  float* const warp_sum_of = warp_max + kWarps * kRows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    const int row = warp_index() * kRows + lane_index() / 4 + half * 8;
    if (lane_index() % 4 == 0) {
      warp_max[row] = highest[half];
      warp_sum_of[row] = sum[half];
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        warp_out[row * D + n * 8 + accumulator_place(lane_index(), i).column] = o[n][2 * half + i];
  }
  sync_block();
  const std::int64_t at = ((static_cast<std::int64_t>(batch) * s.G + group) * grid_size().x + split) * kRows;
  for (int i = thread_index(); i < rows * s.D; i += kThreads) {
    const int row = i / s.D, d = i % s.D;
    float most = -INFINITY;
    for (int warp = 0; warp < kWarps; ++warp) most = fmaxf(most, warp_max[warp * kRows + row]);
    float total = 0, total_sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) {
      const float weight = most == -INFINITY ? 0 : exp2_fast(warp_max[warp * kRows + row] - most);
      total += weight * warp_out[(warp * kRows + row) * D + d];
      total_sum += weight * warp_sum_of[warp * kRows + row];
    }
    a.partial_out[(at + row) * s.D + d] = total;
    if (d == 0) {
      a.partial_max[at + row] = most;
      a.partial_sum[at + row] = total_sum;
    }
  }
}

// A block a query of a head: (B, G, 16 rows of which T * heads are used). out (B, T, H*D).
template <class T>
CUDA_KERNEL(kThreads)
merge_kernel(T* out, DecodeArguments a, int splits) {
  const AttentionSizes& s = a.s;
  const int row = block_index().x, group = block_index().y, batch = block_index().z, heads = s.H / s.G;
  const std::int64_t at = (static_cast<std::int64_t>(batch) * s.G + group) * splits * kRows + row;
  float most = -INFINITY;
  for (int split = 0; split < splits; ++split) most = fmaxf(most, a.partial_max[at + split * kRows]);
  float sum = 0;
  for (int split = 0; split < splits; ++split)
    sum += exp2_fast(a.partial_max[at + split * kRows] - most) * a.partial_sum[at + split * kRows];
  const std::int64_t to = (static_cast<std::int64_t>(batch) * s.T + row / heads) * s.H * s.D +
                          (group * heads + row % heads) * s.D;
  for (int d = thread_index(); d < s.D; d += block_size()) {
    float total = 0;
    for (int split = 0; split < splits; ++split)
      total +=
          exp2_fast(a.partial_max[at + split * kRows] - most) * a.partial_out[(at + split * kRows) * s.D + d];
    out[to + d] = from_float<T>(total / sum);
  }
}

// A block a token. In its row all key heads lie beside each other, then all value heads.
template <class T>
CUDA_KERNEL(kThreads)
kv_append_kernel(T* k_cache, T* v_cache, const T* qkv, const std::int32_t* positions, AttentionSizes s,
                 std::int64_t capacity) {
  const std::int64_t token = block_index().x;
  const std::int64_t b = token / s.T, position = positions[b] + token % s.T;
  const T* const keys = qkv + token * (s.H + 2 * s.G) * s.D + static_cast<std::int64_t>(s.H) * s.D;
  const int width = s.G * s.D;
  for (int i = thread_index(); i < 2 * width; i += block_size()) {
    const int within = i % width;
    T* const cache = i < width ? k_cache : v_cache;
    cache[((b * s.G + within / s.D) * capacity + position) * s.D + within % s.D] = keys[i];
  }
}

template <int D>
void decode(const Context& context, Tensor out, ConstTensor qkv, ConstTensor k_cache, ConstTensor v_cache,
            const std::int32_t* positions, AttentionShape s, std::int64_t capacity) {
  const std::int64_t groups = s.B * s.G;
  const int splits =
      static_cast<int>(std::clamp<std::int64_t>(kBlocks / groups, 1, ceil_div(capacity, kKeyTile)));
  const std::int64_t rows = groups * splits * kRows;
  float* const partial_out = context.scratch_for<float>(rows * (s.D + 2));
  const DecodeArguments arguments{packed_heads(qkv.as<bf16>(), s.H + 2 * s.G, 0, s),
                                  cache_heads(k_cache.as<bf16>(), capacity, s),
                                  cache_heads(v_cache.as<bf16>(), capacity, s),
                                  partial_out,
                                  partial_out + rows * s.D,
                                  partial_out + rows * (s.D + 1),
                                  positions,
                                  sizes(s)};
  const std::size_t tiles = SharedTile<D>::elements(kRows + 4 * kKeyTile) * sizeof(bf16);
  start(context,
        {.grid = {splits, static_cast<int>(s.G), static_cast<int>(s.B)},
         .threads = kThreads,
         .shared_bytes = tiles},
        decode_kernel<D>, arguments);
  start(context,
        {.grid = {static_cast<int>(s.T * s.H / s.G), static_cast<int>(s.G), static_cast<int>(s.B)},
         .threads = threads_for(s.D, kThreads)},
        merge_kernel<bf16>, out.as<bf16>(), arguments, splits);
}

}  // namespace

void kv_append(const Context& context, Tensor k_cache, Tensor v_cache, ConstTensor qkv,
               const std::int32_t* positions, AttentionShape s, std::int64_t capacity) {
  with_type(qkv.type, [&]<class T>(T) {
    start(context,
          {.grid = {static_cast<int>(s.B * s.T), 1, 1}, .threads = threads_for(2 * s.G * s.D, kThreads)},
          kv_append_kernel<T>, k_cache.as<T>(), v_cache.as<T>(), qkv.as<T>(), positions, sizes(s), capacity);
  });
}

void attention_cached(const Context& context, Tensor out, ConstTensor qkv, ConstTensor k_cache,
                      ConstTensor v_cache, const std::int32_t* positions, AttentionShape s,
                      std::int64_t capacity) {
  if (!flash_takes(qkv.type, s.D))
    return simple::forward_with_cache(context, out, qkv, k_cache, v_cache, positions, s, capacity);
  if (s.T * s.H / s.G > kRows)
    return attention_flash_with_cache(context, out, qkv, k_cache, v_cache, positions, s, capacity);
  if (s.D <= 64) return decode<64>(context, out, qkv, k_cache, v_cache, positions, s, capacity);
  if (s.D <= 80) return decode<80>(context, out, qkv, k_cache, v_cache, positions, s, capacity);
  if (s.D <= 96) return decode<96>(context, out, qkv, k_cache, v_cache, positions, s, capacity);
  decode<128>(context, out, qkv, k_cache, v_cache, positions, s, capacity);
}

}  // namespace kernels::cuda
