// What attention's kernels share: tiles of scores with an online softmax (Dao et al. 2022, arXiv 2205.14135),
// whatever keys and values are stored in. Used by kernels/attention.cpp, kernels/attention_segments.cpp and
// kernels/latent_attention.cpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/attention.h"
#include "kernels/parallel.h"
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

KERNELS_INLINE void zero_rows(Rows rows, std::int64_t count, std::int64_t D) {
  for (std::int64_t i = 0; i < count; ++i) std::fill_n(rows.row(i), D, 0.0f);
}

// Where a head's queries, keys and values lie in packed qkv (or their gradients in dqkv).
template <class Float>
struct PackedHeads {
  Float* qkv;
  AttentionShape s;
  std::int64_t stride() const { return (s.H + 2 * s.G) * s.D; }
  HeadRows<Float> head(std::int64_t b, std::int64_t index) const {
    return {qkv + b * s.T * stride() + index * s.D, stride()};
  }
  HeadRows<Float> queries(std::int64_t b, std::int64_t h) const { return head(b, h); }
  HeadRows<Float> keys(std::int64_t b, std::int64_t g) const { return head(b, s.H + g); }
  HeadRows<Float> values(std::int64_t b, std::int64_t g) const { return head(b, s.H + s.G + g); }
};

// Head h's rows of a (B, T, H*D) tensor.
template <class Float>
HeadRows<Float> output_rows(Float* out, AttentionShape s, std::int64_t b, std::int64_t h) {
  return {out + b * s.T * s.H * s.D + h * s.D, s.H * s.D};
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

// Copies rows side by side. Rows of one head lie a token apart, often a power of two, so they compete for the
// same few sets of the cache; rows that a tile product reads more than once are therefore copied first.
void pack_rows(float* packed, ConstRows rows, std::int64_t count, std::int64_t D);

inline ConstMatrix matrix(ConstRows rows) {
  return {rows.data, rows.stride};
}
inline Matrix matrix(Rows rows) {
  return {rows.data, rows.stride};
}

// For each query: the running maximum of its scores, the sum of exp(score - maximum), and the factor by which
// the last tile rescaled earlier sums, exp(previous maximum - new maximum).
struct OnlineSoftmax {
  alignas(64) float maximum[kQueryTile];
  alignas(64) float sum[kQueryTile];
  alignas(64) float factor[kQueryTile];
};

// A mask as one head sees it.
struct HeadMask {
  AttentionMask mask;
  float slope = 0;
  // The score of this head's attention sink: it takes part in the softmax but has no value. Null: no sink.
  const float* sink = nullptr;
};

inline HeadMask mask_of_head(AttentionShape s, std::int64_t h) {
  return {s.mask, s.mask.alibi ? s.mask.slope(h, s.H) : 0.0f, s.sinks ? s.sinks + h : nullptr};
}

// Sets the state of queries that have seen no key yet. A sink counts as a first key whose value is 0.
void begin_softmax(OnlineSoftmax& state, const HeadMask& mask);

// For the first `rows` queries: sets factor to 1 / sum, by which their sums of values must be multiplied, and
// writes their log-sum-exp to lse where it is not null. A query that has seen no key gets 0 and -inf.
void end_softmax(OnlineSoftmax& state, float* lse, std::int64_t rows);

// Calls body(b, h, first, rows) for each head's queries, `together` at a time, on all threads. Later queries
// see more keys and are handed out first, so that the short tasks fill the gaps at the end.
template <class Body>
void each_query_tile(AttentionShape s, std::int64_t together, const Body& body) {
  const std::int64_t tiles = (s.T + together - 1) / together, heads = s.B * s.H;
  parallel_tasks(tiles * heads, [&](std::int64_t task) {
    const std::int64_t first = (tiles - 1 - task / heads) * together;
    body(task % heads / s.H, task % s.H, first, std::min(together, s.T - first));
  });
}

// scores become cap tanh(score / cap).
void cap_scores(float* scores, float cap, std::int64_t count);

// Masks scores (keys, queries) of the queries from `position` on and the keys from `first_key` on: caps them,
// adds ALiBi, and sets the scores of keys that a query does not see to -inf.
void mask_tile(float* scores, const HeadMask& head, std::int64_t position, std::int64_t first_key,
               std::int64_t keys, std::int64_t queries);

// Updates the maxima and sums with scores (keys, queries), which then become exp(score - maximum).
void online_softmax_tile(float* scores, OnlineSoftmax& state, std::int64_t keys, std::int64_t queries);

void multiply_rows(Rows rows, const float* factors, std::int64_t count, std::int64_t D);

// Keys or values that are read where they lie. tile() gives `count` <= kKeyTile rows from `first` on.
template <class T>
struct DirectTiles {
  HeadRows<const T> rows;
  HeadRows<const T> tile(std::int64_t first, std::int64_t, float*) const { return from_row(rows, first); }
};

// Attention of `rows` <= kQueryTile consecutive queries, from `position` on. Keys and values may be added in
// any order; the result goes to out (rows, value_dim).
class QueryTile {
 public:
  QueryTile(Rows out, ConstRows queries, const HeadMask& mask, std::int64_t position, std::int64_t rows,
            std::int64_t key_dim, std::int64_t value_dim);

  // Adds the keys and values of tokens [first, end). Row 0 of both is token `first`.
  template <class KeyTiles, class ValueTiles>
  void add(const KeyTiles& keys, const ValueTiles& values, std::int64_t first, std::int64_t end) {
    const std::int64_t begin = std::max(first, mask_.mask.first_key(position_));
    end = std::min(end, position_ + rows_);
    for (std::int64_t j = begin; j < end; j += kKeyTile) {
      const std::int64_t columns = std::min(kKeyTile, end - j);
      const ConstRows tile = values.tile(j - first, columns, packed_values_);
      if (tile.data != packed_values_) pack_rows(packed_values_, tile, columns, value_dim_);
      add_tile(keys.tile(j - first, columns, gathered_keys_), j, columns);
    }
  }

  // Divides by the sums, and writes each row's log-sum-exp where lse is not null. A query that has seen no
  // key gets zeros and -inf.
  void finish(float* lse);

 private:
  void add_tile(ConstRows keys, std::int64_t first_key, std::int64_t columns);

  alignas(64) float scores_[kKeyTile * kQueryTile];
  OnlineSoftmax state_;
  Rows out_;
  HeadMask mask_;
  std::int64_t position_, rows_, key_dim_, value_dim_;
  float *queries_transposed_, *packed_values_, *gathered_keys_;
  bool begun_ = false;
};

// out (rows, value_dim) = attention of `rows` <= kQueryTile queries, from `position` on, to keys of key_dim
// and values, from token 0 on. Writes each row's log-sum-exp where lse is not null.
template <class KeyTiles, class ValueTiles>
void attend_query_tile(Rows out, float* lse, ConstRows queries, const KeyTiles& keys,
                       const ValueTiles& values, const HeadMask& mask, std::int64_t position,
                       std::int64_t rows, std::int64_t key_dim, std::int64_t value_dim) {
  QueryTile tile(out, queries, mask, position, rows, key_dim, value_dim);
  tile.add(keys, values, 0, position + rows);
  tile.finish(lse);
}

// Gradients of up to kQueryTile consecutive queries at a time, and of the keys and values that they see.
class GradientTile {
 public:
  explicit GradientTile(std::int64_t D);

  // Starts `rows` <= kQueryTile queries from `position` on. lse and out are those over all keys. The first
  // call of add() overwrites dqueries; with add_to_queries, it adds to them.
  void begin(Rows dqueries, bool add_to_queries, ConstRows queries, ConstRows dout, ConstRows out,
             const float* lse, std::int64_t position, std::int64_t rows);

  // Adds the keys and values of tokens [first, end); dkeys and dvalues are added to.
  void add(Rows dkeys, Rows dvalues, ConstRows keys, ConstRows values, const HeadMask& mask,
           std::int64_t first, std::int64_t end);

  // Writes zeros to dqueries if add() was given no key that these queries see.
  void finish();

 private:
  alignas(64) float scores_[kKeyTile * kQueryTile];
  alignas(64) float dprobabilities_[kKeyTile * kQueryTile];
  alignas(64) float lse_[kQueryTile] = {}, delta_[kQueryTile] = {};
  std::int64_t D_, position_ = 0, rows_ = 0;
  float *queries_transposed_, *dout_transposed_, *packed_queries_, *packed_dout_, *packed_keys_;
  Rows dqueries_{};
  bool add_to_queries_ = false;
};

// delta[i] = dout row i . out row i, which is sum over keys of probability * dprobability (Dao et al. 2022,
// section B.4).
void row_dots(float* delta, ConstRows dout, ConstRows out, std::int64_t rows, std::int64_t D);

// scores (keys, queries), capped and masked, become probabilities, and dprobabilities become gradients of the
// products query . key.
void softmax_gradient_tile(float* scores, float* dprobabilities, const float* lse, const float* delta,
                           float scale, std::int64_t keys, std::int64_t queries, float cap = 0);

}  // namespace kernels::cpu
