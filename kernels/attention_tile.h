// What attention's kernels share: tiles of scores with an online softmax (Dao et al. 2022, arXiv 2205.14135),
// whatever the keys and values lie in. For kernels/attention.cpp and kernels/latent_attention.cpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/attention.h"
#include "kernels/tile_product.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Rows of one head within a larger tensor: row i begins at data + i * stride and is D long.
template <class Float>
struct HeadRows {
  Float* data;
  std::int64_t stride;
  Float* row(std::int64_t i) const { return data + i * stride; }
};
using ConstRows = HeadRows<const float>;
using Rows = HeadRows<float>;

template <class Float>
HeadRows<Float> from_row(HeadRows<Float> rows, std::int64_t first) {
  return {rows.row(first), rows.stride};
}

KERNELS_INLINE float dot(const float* a, const float* b, std::int64_t D) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t d = 0; d < D; ++d) sum += a[d] * b[d];
  return sum;
}

KERNELS_INLINE void multiply(float* row, float factor, std::int64_t D) {
#pragma omp simd
  for (std::int64_t d = 0; d < D; ++d) row[d] *= factor;
}

// Tiles of scores are kept transposed, (keys, queries): then the softmax's maxima and sums run across
// vectors, not within them, and every product reads its operands along rows. Queries are padded with zeros to
// whole vectors.
inline constexpr std::int64_t kQueryTile = 64;
inline constexpr std::int64_t kKeyTile = 64;
inline constexpr std::int64_t kLanes = 32;

KERNELS_INLINE std::int64_t padded(std::int64_t queries) {
  return (queries + kLanes - 1) / kLanes * kLanes;
}

// The calling thread's scratch for `tiles` tiles of 64 x D.
float* tile_scratch(std::int64_t tiles, std::int64_t D);

// transposed (D, kQueryTile) = factor * rows^T, zero in the columns from count to padded(count).
void pack_transposed(float* transposed, ConstRows rows, float factor, std::int64_t count, std::int64_t D);

// Rows of one head lie a whole token apart, a distance that often is a power of two, so that they compete for
// the same few places of the cache; what a tile product reads more than once is copied together first.
void pack_rows(float* packed, ConstRows rows, std::int64_t count, std::int64_t D);

inline ConstMatrix matrix(ConstRows rows) {
  return {rows.data, rows.stride};
}
inline Matrix matrix(Rows rows) {
  return {rows.data, rows.stride};
}

// For every query, the running maximum of its scores, the sum of exp(score - maximum), and by what the last
// tile rescaled them: exp(previous maximum - new maximum).
struct OnlineSoftmax {
  alignas(64) float maximum[kQueryTile];
  alignas(64) float sum[kQueryTile];
  alignas(64) float factor[kQueryTile];
};

// A mask as one head sees it.
struct HeadMask {
  AttentionMask mask;
  float slope = 0;
  // A score that takes part in the softmax and has no value; null: there is none.
  const float* sink = nullptr;
};

// scores become cap tanh(score / cap).
void cap_scores(float* scores, float cap, std::int64_t count);

// scores (keys, queries), of queries from `position` and keys from `first_key` on: they are capped, ALiBi is
// added, and what a query does not see becomes -inf.
void mask_tile(float* scores, const HeadMask& head, std::int64_t position, std::int64_t first_key,
               std::int64_t keys, std::int64_t queries);

// scores (keys, queries) become exp(score - maximum), after maxima and sums have taken them in.
void online_softmax_tile(float* scores, OnlineSoftmax& state, std::int64_t keys, std::int64_t queries);

void multiply_rows(Rows rows, const float* factors, std::int64_t count, std::int64_t D);

// Keys or values that lie in memory as they are read. tile(): `count` <= kKeyTile rows from `first` on.
struct DirectTiles {
  ConstRows rows;
  ConstRows tile(std::int64_t first, std::int64_t, float*) const { return {rows.row(first), rows.stride}; }
};

// out (rows, value_dim) = attention of `rows` <= kQueryTile queries, from `position` on, to keys of key_dim
// and values. Writes each row's log-sum-exp where lse is not null.
template <class KeyTiles, class ValueTiles>
void attend_query_tile(Rows out, float* lse, ConstRows queries, const KeyTiles& keys,
                       const ValueTiles& values, const HeadMask& mask, std::int64_t position,
                       std::int64_t rows, std::int64_t key_dim, std::int64_t value_dim) {
  alignas(64) float scores[kKeyTile * kQueryTile];
  OnlineSoftmax state;
  // Not -inf: a query may see no key of its tile's first ones, and -inf less -inf is no number. A sink is as
  // a first key whose value is 0.
  std::fill_n(state.maximum, kQueryTile, mask.sink ? *mask.sink : std::numeric_limits<float>::lowest());
  std::fill_n(state.sum, kQueryTile, mask.sink ? 1.0f : 0.0f);
  const std::int64_t widest = std::max(key_dim, value_dim);
  float* queries_transposed = tile_scratch(3, widest);
  float* packed_values = queries_transposed + widest * kQueryTile;
  float* gathered_keys = packed_values + widest * kKeyTile;
  pack_transposed(queries_transposed, queries, 1.0f / std::sqrt(static_cast<float>(key_dim)), rows, key_dim);

  const std::int64_t width = padded(rows);
  const std::int64_t seen = position + rows, begin = mask.mask.first_key(position);
  for (std::int64_t j = begin; j < seen; j += kKeyTile) {
    const std::int64_t columns = std::min(kKeyTile, seen - j);
    tile_product({scores, kQueryTile}, matrix(keys.tile(j, columns, gathered_keys)),
                 {queries_transposed, kQueryTile}, false, columns, width, key_dim);
    mask_tile(scores, mask, position, j, columns, rows);
    online_softmax_tile(scores, state, columns, width);
    if (j > begin) multiply_rows(out, state.factor, rows, value_dim);
    const ConstRows tile = values.tile(j, columns, packed_values);
    if (tile.data != packed_values) pack_rows(packed_values, tile, columns, value_dim);
    tile_product_transposed(matrix(out), {scores, kQueryTile}, {packed_values, value_dim}, j > begin, rows,
                            value_dim, columns);
  }
  for (std::int64_t i = 0; i < rows; ++i) state.factor[i] = 1.0f / state.sum[i];
  multiply_rows(out, state.factor, rows, value_dim);
  if (lse)
    for (std::int64_t i = 0; i < rows; ++i) lse[i] = state.maximum[i] + std::log(state.sum[i]);
}

// delta[i] = dout row i . out row i, which is sum over keys of probability * dprobability (Dao et al. 2022,
// section B.4).
void row_dots(float* delta, ConstRows dout, ConstRows out, std::int64_t rows, std::int64_t D);

// scores (keys, queries), capped and masked, become probabilities, and dprobabilities become gradients of the
// products query . key.
void softmax_gradient_tile(float* scores, float* dprobabilities, const float* lse, const float* delta,
                           float scale, std::int64_t keys, std::int64_t queries, float cap = 0);

}  // namespace kernels::cpu
