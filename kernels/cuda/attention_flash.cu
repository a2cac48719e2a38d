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
#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarpRows = 16;
constexpr int kBackwardQueries = 64;
constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

struct ForwardArguments {
  Heads<const bf16> q, k, v;
  Heads<bf16> out;
  float* lse;
  const std::int32_t* positions;  // of query 0 in each sequence; null: 0
  AttentionSizes s;
};

// Writes 16 rows from `row` of factor * o, two elements a thread and store; rows from `rows` on are left
// alone.
template <int D>
CUDA_DEVICE void store_rows(bf16* to, std::int64_t stride, int row, int rows, int columns,
                            const float (&o)[D / 8][4], float factor_low, float factor_high) {
#pragma unroll
  for (int n = 0; n < D / 8; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Place place = accumulator_place(lane_index(), 2 * half);
      const int r = row + place.row, c = n * 8 + place.column;
      const float factor = half == 0 ? factor_low : factor_high;
      if (r < rows && c < columns)
        *reinterpret_cast<std::uint32_t*>(to + r * stride + c) =
            pack_bf16(o[n][2 * half] * factor, o[n][2 * half + 1] * factor);
    }
}

// Shared memory: queries (64, D), keys and values (2, 64, D) each. Grid: (tiles of queries, H, B).
template <int D>
CUDA_KERNEL(kThreads)
flash_forward_kernel(ForwardArguments a) {
  constexpr int kQueries = kThreads / kWarp * kWarpRows;
  using Tile = SharedTile<D>;
  bf16* const q = shared_memory<bf16>();
  bf16* const k = q + Tile::elements(kQueries);
  bf16* const v = k + 2 * Tile::elements(kKeyTile);
  const AttentionSizes& s = a.s;
  const int batch = block_index().z, head = block_index().y, group = head / (s.H / s.G);
  // The longest tiles first: what is left over at the end is short.
  const int first = (grid_size().x - 1 - block_index().x) * kQueries;
  const int begin = a.positions != nullptr ? a.positions[batch] : 0;
  const int queries = s.T - first < kQueries ? s.T - first : kQueries;
  const QueryTile tile{first, queries, begin, begin + s.T, true};
  const int tiles = tile.key_tiles();

  const auto copy_keys = [&](bf16* to, const Heads<const bf16>& from, int j) {
    if (j < tiles)
      copy_tile<D, kKeyTile>(to + j % 2 * Tile::elements(kKeyTile), from.at(batch, group, j * kKeyTile),
                             from.row, tile.keys - j * kKeyTile, s.D);
    commit_copies();
  };
  copy_tile<D, kQueries>(q, a.q.at(batch, head, first), a.q.row, queries, s.D);
  copy_keys(k, a.k, 0);
  copy_keys(v, a.v, 0);

  const float to_exponent = s.scale * kLog2e;
  float o[D / 8][4] = {};
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  const int row = warp_index() * kWarpRows;
  for (int j = 0; j < tiles; ++j) {
    const bf16* const keys = k + j % 2 * Tile::elements(kKeyTile);
    const bf16* const values = v + j % 2 * Tile::elements(kKeyTile);
    wait_for_copies<1>();  // of keys j; the values may be under way
    sync_block();
    copy_keys(k, a.k, j + 1);

    float score[kKeyTile / 8][4];
    multiply_rows<D>(score, q, row, keys);
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
    copy_keys(v, a.v, j + 1);
    multiply_scores<D>(o, score, values);
  }
  wait_for_copies<0>();

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    inverse[half] = 1 / sum[half];
    const int r = row + lane_index() / 4 + half * 8;
    if (a.lse != nullptr && lane_index() % 4 == 0 && r < queries)
      a.lse[(static_cast<std::int64_t>(batch) * s.H + head) * s.T + first + r] =
          highest[half] * kLn2 + logf(sum[half]);
  }
  store_rows<D>(a.out.at(batch, head, first), a.out.row, row, queries, s.D, o, inverse[0], inverse[1]);
}

// The gradient of a score before its scale, and the probability: p = exp(score - lse), ds = p (dp - delta).
CUDA_DEVICE float probability(float score, float to_exponent, float lse_log2) {
  return exp2_fast(score * to_exponent - lse_log2);
}

// Shared memory: keys and values (64, D) each, queries and their dout (2, 64, D) each, then for each of two
// tiles of queries 64 log-sum-exps (base 2) and 64 deltas. Grid: (tiles of keys, G, B).
template <int D>
CUDA_KERNEL(kThreads)
flash_backward_keys_kernel(BackwardArguments<bf16> a) {
  constexpr int kQ = kBackwardQueries;
  using Tile = SharedTile<D>;
  bf16* const k = shared_memory<bf16>();
  bf16* const v = k + Tile::elements(kKeyTile);
  bf16* const q = v + Tile::elements(kKeyTile);
  bf16* const dout = q + 2 * Tile::elements(kQ);
  float* const statistics = reinterpret_cast<float*>(dout + 2 * Tile::elements(kQ));
  const AttentionSizes& s = a.s;
  const int batch = block_index().z, group = block_index().y, heads = s.H / s.G;
  const int first_key =
      block_index().x * kKeyTile;  // the earliest keys have the most queries, and come first
  const int keys = s.T - first_key < kKeyTile ? s.T - first_key : kKeyTile;
  const int first_tile = first_query_tile(first_key, kQ, true);
  const int tiles = (s.T + kQ - 1) / kQ - first_tile;

  // Step i is tile first_tile + i % tiles of head i / tiles of the group.
  const int steps = heads * tiles;
  const auto copy_queries = [&](int i) {
    if (i < steps) {
      const int head = group * heads + i / tiles, first = (first_tile + i % tiles) * kQ;
      copy_tile<D, kQ>(q + i % 2 * Tile::elements(kQ), a.q.at(batch, head, first), a.q.row, s.T - first, s.D);
      copy_tile<D, kQ>(dout + i % 2 * Tile::elements(kQ), a.dout.at(batch, head, first), a.dout.row,
                       s.T - first, s.D);
      for (int t = thread_index(); t < kQ; t += kThreads) {
        const std::int64_t at = (static_cast<std::int64_t>(batch) * s.H + head) * s.T + first + t;
        const bool valid = first + t < s.T;
        // Queries beyond the end get probability 0.
        statistics[i % 2 * 2 * kQ + t] = valid ? a.lse[at] * kLog2e : INFINITY;
        statistics[i % 2 * 2 * kQ + kQ + t] = valid ? a.delta[at] : 0;
      }
    }
    commit_copies();
  };
  copy_tile<D, kKeyTile>(k, a.k.at(batch, group, first_key), a.k.row, keys, s.D);
  copy_tile<D, kKeyTile>(v, a.v.at(batch, group, first_key), a.v.row, keys, s.D);
  copy_queries(0);

  const float to_exponent = s.scale * kLog2e;
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  const int row = warp_index() * kWarpRows;
  for (int i = 0; i < steps; ++i) {
    wait_for_copies<0>();
    sync_block();  // step i has arrived, and all are done with the memory of step i - 1
    copy_queries(i + 1);
    const bf16* const queries = q + i % 2 * Tile::elements(kQ);
    const bf16* const gradients = dout + i % 2 * Tile::elements(kQ);
    const float* const lse = statistics + i % 2 * 2 * kQ;
    const float* const delta = lse + kQ;
    const int first = (first_tile + i % tiles) * kQ;

    float p[kQ / 8][4];  // (keys, queries)
    multiply_rows<D>(p, k, row, queries);
#pragma unroll
    for (int n = 0; n < kQ / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Place place = accumulator_place(lane_index(), e);
        const int query = n * 8 + place.column;
        const bool sees = first_key + row + place.row <= first + query;
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
  store_rows<D>(a.dk.at(batch, group, first_key), a.dk.row, row, keys, s.D, dk, s.scale, s.scale);
  store_rows<D>(a.dv.at(batch, group, first_key), a.dv.row, row, keys, s.D, dv, 1, 1);
}

// Shared memory: queries and dout (64, D) each, keys and values (2, 64, D) each. Grid: (tiles of queries, H,
// B).
template <int D>
CUDA_KERNEL(kThreads)
flash_backward_queries_kernel(BackwardArguments<bf16> a) {
  constexpr int kQ = kBackwardQueries;
  using Tile = SharedTile<D>;
  bf16* const q = shared_memory<bf16>();
  bf16* const dout = q + Tile::elements(kQ);
  bf16* const k = dout + Tile::elements(kQ);
  bf16* const v = k + 2 * Tile::elements(kKeyTile);
  const AttentionSizes& s = a.s;
  const int batch = block_index().z, head = block_index().y, group = head / (s.H / s.G);
  const int first = (grid_size().x - 1 - block_index().x) * kQ;
  const int queries = s.T - first < kQ ? s.T - first : kQ;
  const QueryTile tile{first, queries, 0, s.T, true};
  const int tiles = tile.key_tiles();

  const auto copy_keys = [&](int j) {
    if (j < tiles) {
      const int stage = j % 2 * Tile::elements(kKeyTile), key = j * kKeyTile;
      copy_tile<D, kKeyTile>(k + stage, a.k.at(batch, group, key), a.k.row, s.T - key, s.D);
      copy_tile<D, kKeyTile>(v + stage, a.v.at(batch, group, key), a.v.row, s.T - key, s.D);
    }
    commit_copies();
  };
  copy_tile<D, kQ>(q, a.q.at(batch, head, first), a.q.row, queries, s.D);
  copy_tile<D, kQ>(dout, a.dout.at(batch, head, first), a.dout.row, queries, s.D);
  copy_keys(0);

  const int row = warp_index() * kWarpRows;
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + lane_index() / 4 + half * 8;
    const std::int64_t at = (static_cast<std::int64_t>(batch) * s.H + head) * s.T + first + r;
    lse[half] = r < queries ? a.lse[at] * kLog2e : INFINITY;
    delta[half] = r < queries ? a.delta[at] : 0;
  }
  const float to_exponent = s.scale * kLog2e;
  float dq[D / 8][4] = {};
  for (int j = 0; j < tiles; ++j) {
    wait_for_copies<0>();
    sync_block();
    copy_keys(j + 1);
    const bf16* const keys = k + j % 2 * Tile::elements(kKeyTile);
    const bf16* const values = v + j % 2 * Tile::elements(kKeyTile);
    float p[kKeyTile / 8][4], ds[kKeyTile / 8][4];
    multiply_rows<D>(p, q, row, keys);
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
  store_rows<D>(a.dq.at(batch, head, first), a.dq.row, row, queries, s.D, dq, s.scale, s.scale);
}

template <int D>
std::size_t tile_bytes(int rows) {
  return static_cast<std::size_t>(SharedTile<D>::elements(rows)) * sizeof(bf16);
}

// Calls body.template operator()<D>() with the smallest tile width that holds the head size.
template <class Body>
void with_head_size(std::int64_t D, const Body& body) {
  if (D <= 64)
    body.template operator()<64>();
  else if (D <= 80)
    body.template operator()<80>();
  else if (D <= 96)
    body.template operator()<96>();
  else
    body.template operator()<128>();
}

int query_tiles(std::int64_t T) {
  return static_cast<int>(ceil_div(T, 64));
}

void forward(const Context& context, const ForwardArguments& arguments, AttentionShape s) {
  with_head_size(s.D, [&]<int D>() {
    start(context,
          {.grid = {query_tiles(s.T), static_cast<int>(s.H), static_cast<int>(s.B)},
           .threads = kThreads,
           .shared_bytes = tile_bytes<D>(64 + 4 * kKeyTile)},
          flash_forward_kernel<D>, arguments);
  });
}

}  // namespace

bool flash_takes(Type type, std::int64_t D) {
  return type == Type::bf16 && D % 8 == 0 && D <= 128;
}

void attention_flash_forward(const Context& context, Tensor out, float* lse, ConstTensor qkv,
                             AttentionShape s) {
  if (!flash_takes(qkv.type, s.D)) return simple::forward(context, out, lse, qkv, s);
  const std::int64_t packed = s.H + 2 * s.G;
  const bf16* const rows = qkv.as<bf16>();
  forward(context,
          {packed_heads(rows, packed, 0, s), packed_heads(rows, packed, s.H, s),
           packed_heads(rows, packed, s.H + s.G, s), packed_heads(out.as<bf16>(), s.H, 0, s), lse, nullptr,
           sizes(s)},
          s);
}

void attention_flash_with_cache(const Context& context, Tensor out, ConstTensor qkv, ConstTensor k_cache,
                                ConstTensor v_cache, const std::int32_t* positions, AttentionShape s,
                                std::int64_t capacity) {
  forward(context,
          {packed_heads(qkv.as<bf16>(), s.H + 2 * s.G, 0, s), cache_heads(k_cache.as<bf16>(), capacity, s),
           cache_heads(v_cache.as<bf16>(), capacity, s), packed_heads(out.as<bf16>(), s.H, 0, s), nullptr,
           positions, sizes(s)},
          s);
}

void attention_flash_backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv,
                              ConstTensor out, const float* lse, AttentionShape s) {
  float* const delta = context.scratch_for<float>(s.B * s.H * s.T);
  simple::row_products(context, delta, dout, out, s);
  if (!flash_takes(qkv.type, s.D)) return simple::backward(context, dqkv, dout, qkv, lse, delta, s);
  const auto arguments = backward_arguments(dqkv.as<bf16>(), dout.as<bf16>(), qkv.as<bf16>(), lse, delta, s);
  with_head_size(s.D, [&]<int D>() {
    const int B = static_cast<int>(s.B);
    start(context,
          {.grid = {query_tiles(s.T), static_cast<int>(s.G), B},
           .threads = kThreads,
           .shared_bytes =
               tile_bytes<D>(2 * kKeyTile + 4 * kBackwardQueries) + 4 * kBackwardQueries * sizeof(float)},
          flash_backward_keys_kernel<D>, arguments);
    start(context,
          {.grid = {query_tiles(s.T), static_cast<int>(s.H), B},
           .threads = kThreads,
           .shared_bytes = tile_bytes<D>(2 * kBackwardQueries + 4 * kKeyTile)},
          flash_backward_queries_kernel<D>, arguments);
  });
}

}  // namespace kernels::cuda
