#include "kernels/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/attention_tile.h"
#include "kernels/blas_product.h"
#include "kernels/parallel.h"

namespace kernels::cpu {
namespace {

// Expanded keys and values, or their gradients.
template <class Float>
struct Expanded {
  Float* kv;
  LatentShape s;

  HeadRows<Float> keys(std::int64_t b, std::int64_t h) const { return up(b, h * (s.N + s.V)); }
  HeadRows<Float> values(std::int64_t b, std::int64_t h) const { return up(b, h * (s.N + s.V) + s.N); }
  HeadRows<Float> rotary(std::int64_t b, std::int64_t h) const {
    Float* const behind = kv + s.B * s.T * s.H * (s.N + s.V);
    return {behind + (b * s.T * s.H + h) * s.P, s.H * s.P};
  }

 private:
  HeadRows<Float> up(std::int64_t b, std::int64_t column) const {
    const std::int64_t width = s.H * (s.N + s.V);
    return {kv + b * s.T * width + column, width};
  }
};

template <class Float>
HeadRows<Float> head_of(Float* rows, LatentShape s, std::int64_t b, std::int64_t h, std::int64_t width) {
  return {rows + (b * s.T * s.H + h) * width, s.H * width};
}

// Keys of one head, their two parts brought together.
struct LatentKeyTiles {
  ConstRows unrotated, rotary;
  std::int64_t N, P;

  ConstRows tile(std::int64_t first, std::int64_t count, float* gathered) const {
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(unrotated.row(first + i), N, gathered + i * (N + P));
      std::copy_n(rotary.row(first + i), P, gathered + i * (N + P) + N);
    }
    return {gathered, N + P};
  }
};

HeadMask mask_of(LatentShape s) {
  return {s.mask};
}

// Halves i and i + P/2 by the table's angles times direction, as kernels/rope.cpp.
void rotate_row(float* row, const float* angles, float direction, std::int64_t P) {
  const std::int64_t half = P / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const float x = row[i], y = row[half + i], sine = direction * angles[half + i];
    row[i] = x * angles[i] - y * sine;
    row[half + i] = y * angles[i] + x * sine;
  }
}

}  // namespace

void rope_latent_forward(float* q, StridedRows<float> key, float* kv, const float* table,
                         const std::int32_t* positions, LatentShape s) {
  const Expanded<float> expanded{kv, s};
  parallel_ranges(s.B * s.T, 2 * s.H * s.P, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t b = row / s.T, t = row % s.T;
      const float* const angles = table + ((positions ? positions[b] : 0) + t) * s.P;
      float* const own = key.row(row);
      rotate_row(own, angles, 1.0f, s.P);
      for (std::int64_t h = 0; h < s.H; ++h) {
        rotate_row(q + (row * s.H + h) * s.query() + s.N, angles, 1.0f, s.P);
        if (kv) std::copy_n(own, s.P, expanded.rotary(b, h).row(t));
      }
    }
  });
}

void rope_latent_backward(float* dq, float* dkey, const float* dkv, const float* table, LatentShape s) {
  const Expanded<const float> expanded{dkv, s};
  parallel_ranges(s.B * s.T, 2 * s.H * s.P, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t b = row / s.T, t = row % s.T;
      const float* const angles = table + t * s.P;
      float* const own = dkey + row * s.P;
      std::fill_n(own, s.P, 0.0f);
      for (std::int64_t h = 0; h < s.H; ++h) {
        rotate_row(dq + (row * s.H + h) * s.query() + s.N, angles, -1.0f, s.P);
        const float* const copy = expanded.rotary(b, h).row(t);
        for (std::int64_t i = 0; i < s.P; ++i) own[i] += copy[i];
      }
      rotate_row(own, angles, -1.0f, s.P);
    }
  });
}

void attention_latent_forward(float* out, float* lse, const float* q, const float* kv, LatentShape s) {
  const Expanded<const float> expanded{kv, s};
  const std::int64_t tiles = (s.T + kQueryTile - 1) / kQueryTile;
  // Later tiles see more keys: handed out first.
  parallel_tasks(tiles * s.B * s.H, [&](std::int64_t task) {
    const std::int64_t first = (tiles - 1 - task / (s.B * s.H)) * kQueryTile;
    const std::int64_t b = task % (s.B * s.H) / s.H, h = task % s.H;
    attend_query_tile(from_row(head_of(out, s, b, h, s.V), first),
                      lse ? lse + (b * s.H + h) * s.T + first : nullptr,
                      from_row(head_of(q, s, b, h, s.query()), first),
                      LatentKeyTiles{expanded.keys(b, h), expanded.rotary(b, h), s.N, s.P},
                      DirectTiles{expanded.values(b, h)}, mask_of(s), first,
                      std::min(kQueryTile, s.T - first), s.query(), s.V);
  });
}

void attention_latent_backward(float* dq, float* dkv, const float* dout, const float* q, const float* kv,
                               const float* out, const float* lse, LatentShape s) {
  const Expanded<const float> expanded{kv, s};
  const Expanded<float> gradients{dkv, s};
  const std::int64_t D = s.query(), widest = std::max(D, s.V);
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  // A task owns a head, whose keys and values no other reads.
  parallel_tasks(s.B * s.H, [&](std::int64_t task) {
    const std::int64_t b = task / s.H, h = task % s.H;
    const LatentKeyTiles keys{expanded.keys(b, h), expanded.rotary(b, h), s.N, s.P};
    const ConstRows values = expanded.values(b, h);
    const Rows dkeys = gradients.keys(b, h), dvalues = gradients.values(b, h),
               drotary = gradients.rotary(b, h);
    zero_rows(dkeys, s.T, s.N);
    zero_rows(drotary, s.T, s.P);
    zero_rows(dvalues, s.T, s.V);
    alignas(64) float scores[kKeyTile * kQueryTile];
    alignas(64) float dprobabilities[kKeyTile * kQueryTile];
    alignas(64) float tile_lse[kQueryTile] = {}, delta[kQueryTile] = {};
    float* const queries_transposed = tile_scratch(5, widest);
    float* const upward_transposed = queries_transposed + widest * kQueryTile;
    float* const packed_queries = upward_transposed + widest * kQueryTile;
    float* const packed_upward = packed_queries + kQueryTile * widest;
    float* const gathered_keys = packed_upward + kQueryTile * widest;
    for (std::int64_t i = 0; i < s.T; i += kQueryTile) {
      const std::int64_t rows = std::min(kQueryTile, s.T - i), width = padded(rows);
      const ConstRows queries = from_row(head_of(q, s, b, h, D), i);
      const ConstRows upward = from_row(head_of(dout, s, b, h, s.V), i);
      const Rows dqueries = from_row(head_of(dq, s, b, h, D), i);
      pack_transposed(queries_transposed, queries, scale, rows, D);
      pack_transposed(upward_transposed, upward, 1.0f, rows, s.V);
      pack_rows(packed_queries, queries, rows, D);
      pack_rows(packed_upward, upward, rows, s.V);
      row_dots(delta, upward, from_row(head_of(out, s, b, h, s.V), i), rows, s.V);
      std::copy_n(lse + (b * s.H + h) * s.T + i, rows, tile_lse);
      const std::int64_t begin = s.mask.first_key(i);
      for (std::int64_t j = begin; j < i + rows; j += kKeyTile) {
        const std::int64_t columns = std::min(kKeyTile, i + rows - j);
        const ConstRows tile = keys.tile(j, columns, gathered_keys);
        tile_product({scores, kQueryTile}, matrix(tile), {queries_transposed, kQueryTile}, false, columns,
                     width, D);
        mask_tile(scores, mask_of(s), i, j, columns, rows);
        tile_product({dprobabilities, kQueryTile}, matrix(from_row(values, j)),
                     {upward_transposed, kQueryTile}, false, columns, width, s.V);
        softmax_gradient_tile(scores, dprobabilities, tile_lse, delta, scale, columns, width);
        tile_product(matrix(from_row(dvalues, j)), {scores, kQueryTile}, {packed_upward, s.V}, true, columns,
                     s.V, rows);
        tile_product(matrix(from_row(dkeys, j)), {dprobabilities, kQueryTile}, {packed_queries, D}, true,
                     columns, s.N, rows);
        tile_product(matrix(from_row(drotary, j)), {dprobabilities, kQueryTile}, {packed_queries + s.N, D},
                     true, columns, s.P, rows);
        tile_product_transposed(matrix(dqueries), {dprobabilities, kQueryTile}, matrix(tile), j > begin, rows,
                                D, columns);
      }
    }
  });
}

void latent_append(const LatentCache& cache, const float* latent, StridedRows<const float> key,
                   const std::int32_t* positions, LatentShape s) {
  for (std::int64_t row = 0; row < s.B * s.T; ++row) {
    const std::int64_t b = row / s.T;
    float* const to = cache.row(b, positions[b] + row % s.T, s.cached());
    std::copy_n(latent + row * s.L, s.L, to);
    std::copy_n(key.row(row), s.P, to + s.L);
  }
}

namespace {

// Calls body(first row in the part, rows, fp32 rows) on `count` rows of the up-projection from row `begin`
// on.
template <class Body>
void for_up_rows(const float* up_weight, std::int64_t begin, std::int64_t count, LatentShape s,
                 const Body& body) {
  body(std::int64_t{0}, count, up_weight + begin * s.L);
}
// Codes are widened so many rows at a time that these stay in the first caches.
template <class Body>
void for_up_rows(QuantisedWeight up_weight, std::int64_t begin, std::int64_t count, LatentShape s,
                 const Body& body) {
  static thread_local std::vector<float> widened;
  constexpr std::int64_t kAtOnce = QuantisedFormat::kTileRows;
  widened.resize(static_cast<std::size_t>(kAtOnce * s.L));
  for (std::int64_t first = 0; first < count; first += kAtOnce) {
    const std::int64_t rows = std::min(kAtOnce, count - first);
    dequantise_rows(widened.data(), up_weight, begin + first, rows, s.H * (s.N + s.V), s.L);
    body(first, rows, widened.data());
  }
}

template <class UpWeight>
void absorb_keys_of(float* out, const float* q, UpWeight up_weight, LatentShape s) {
  const std::int64_t rows = s.B * s.T;
  parallel_tasks(s.H, [&](std::int64_t h) {
    const Rows absorbed{out + h * s.L, s.H * s.L};
    zero_rows(absorbed, rows, s.L);
    for_up_rows(up_weight, h * (s.N + s.V), s.N, s,
                [&](std::int64_t first, std::int64_t count, const float* keys) {
                  add_product(matrix(absorbed), {q + h * s.query() + first, s.H * s.query()}, {keys, s.L},
                              rows, s.L, count);
                });
  });
}

template <class UpWeight>
void absorb_values_of(float* out, const float* attended, UpWeight up_weight, LatentShape s) {
  const std::int64_t rows = s.B * s.T;
  parallel_tasks(s.H, [&](std::int64_t h) {
    for_up_rows(up_weight, h * (s.N + s.V) + s.N, s.V, s,
                [&](std::int64_t first, std::int64_t count, const float* values) {
                  const Rows of_head{out + h * s.V + first, s.H * s.V};
                  zero_rows(of_head, rows, count);
                  add_product(matrix(of_head), {attended + h * s.L, s.H * s.L}, {values, s.L, true}, rows,
                              count, s.L);
                });
  });
}

}  // namespace

void absorb_keys(float* out, const float* q, const float* up_weight, LatentShape s) {
  absorb_keys_of(out, q, up_weight, s);
}
void absorb_values(float* out, const float* attended, const float* up_weight, LatentShape s) {
  absorb_values_of(out, attended, up_weight, s);
}
void absorb_keys(float* out, const float* q, QuantisedWeight up_weight, LatentShape s) {
  absorb_keys_of(out, q, up_weight, s);
}
void absorb_values(float* out, const float* attended, QuantisedWeight up_weight, LatentShape s) {
  // Widening a row takes as long as multiplying its codes by some tens of tokens.
  constexpr std::int64_t kFewTokens = 16, kTile = QuantisedFormat::kTileRows;
  const std::int64_t rows = s.B * s.T;
  if (rows > kFewTokens || s.N % kTile != 0 || s.V % kTile != 0)
    return absorb_values_of(out, attended, up_weight, s);
  static thread_local std::vector<std::int64_t> one_of_each_head;
  one_of_each_head.resize(static_cast<std::size_t>(s.H + 1));
  std::iota(one_of_each_head.begin(), one_of_each_head.end(), std::int64_t{0});
  for (std::int64_t r = 0; r < rows; ++r)
    grouped_matmul_quantised(out + r * s.H * s.V, attended + r * s.H * s.L, up_weight.from_row(s.N, s.L),
                             nullptr, one_of_each_head, {s.V, s.L}, s.N + s.V);
}

void attention_latent_cached(float* out, const float* absorbed, const float* q, const LatentCache& cache,
                             const std::int32_t* positions, LatentShape s) {
  // The heads of a token share every key: as many as vectors have lanes are one tile of queries.
  constexpr std::int64_t kHeads = kLanes;
  const std::int64_t tiles = (s.H + kHeads - 1) / kHeads, D = s.cached();
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.query()));
  parallel_tasks(s.B * s.T * tiles, [&](std::int64_t task) {
    const std::int64_t row = task / tiles, b = row / s.T, first = task % tiles * kHeads;
    const std::int64_t heads = std::min(kHeads, s.H - first), seen = positions[b] + row % s.T + 1;
    alignas(64) float scores[kKeyTile * kQueryTile];
    OnlineSoftmax state;
    std::fill_n(state.maximum, kQueryTile, std::numeric_limits<float>::lowest());
    std::fill_n(state.sum, kQueryTile, 0.0f);
    float* const queries = tile_scratch(3, D);
    float* const transposed = queries + D * kQueryTile;
    float* const keys = transposed + D * kQueryTile;
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t head = row * s.H + first + h;
      std::copy_n(absorbed + head * s.L, s.L, queries + h * D);
      std::copy_n(q + head * s.query() + s.N, s.P, queries + h * D + s.L);
    }
    pack_transposed(transposed, {queries, D}, scale, heads, D);
    const Rows to{out + (row * s.H + first) * s.L, s.L};
    for (std::int64_t j = 0; j < seen; j += kKeyTile) {
      const std::int64_t columns = std::min(kKeyTile, seen - j);
      for (std::int64_t i = 0; i < columns; ++i) std::copy_n(cache.row(b, j + i, D), D, keys + i * D);
      tile_product({scores, kQueryTile}, {keys, D}, {transposed, kQueryTile}, false, columns, kHeads, D);
      online_softmax_tile(scores, state, columns, kHeads);
      if (j > 0) multiply_rows(to, state.factor, heads, s.L);
      tile_product_transposed(matrix(to), {scores, kQueryTile}, {keys, D}, j > 0, heads, s.L, columns);
    }
    for (std::int64_t h = 0; h < heads; ++h) state.factor[h] = 1.0f / state.sum[h];
    multiply_rows(to, state.factor, heads, s.L);
  });
}

}  // namespace kernels::cpu
