#include "kernels/attention_tile.h"

#include <vector>

#include "kernels/vector_math.h"

namespace kernels::cpu {

float* tile_scratch(std::int64_t tiles, std::int64_t D) {
  static thread_local std::vector<float> storage;
  const auto size = static_cast<std::size_t>(tiles * D * std::max(kQueryTile, kKeyTile));
  if (storage.size() < size) storage.resize(size);
  return storage.data();
}

KERNELS_MULTIVERSION void pack_transposed(float* transposed, ConstRows rows, float factor, std::int64_t count,
                                          std::int64_t D) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float* row = rows.row(i);
    for (std::int64_t d = 0; d < D; ++d) transposed[d * kQueryTile + i] = factor * row[d];
  }
  for (std::int64_t d = 0; d < D; ++d)
    std::fill(transposed + d * kQueryTile + count, transposed + d * kQueryTile + padded(count), 0.0f);
}

void begin_softmax(OnlineSoftmax& state, const HeadMask& mask) {
  // Not -inf: a query may see none of its tile's first keys, and -inf minus -inf is no number.
  std::fill_n(state.maximum, kQueryTile, mask.sink ? *mask.sink : std::numeric_limits<float>::lowest());
  std::fill_n(state.sum, kQueryTile, mask.sink ? 1.0f : 0.0f);
}

void end_softmax(OnlineSoftmax& state, float* lse, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float sum = state.sum[i];
    state.factor[i] = sum == 0 ? 0 : 1.0f / sum;
    if (lse) lse[i] = sum == 0 ? kMinusInfinity : state.maximum[i] + std::log(sum);
  }
}

void pack_rows(float* packed, ConstRows rows, std::int64_t count, std::int64_t D) {
  for (std::int64_t i = 0; i < count; ++i) std::copy_n(rows.row(i), D, packed + i * D);
}

KERNELS_MULTIVERSION void cap_scores(float* scores, float cap, std::int64_t count) {
  const float of_cap = 1.0f / cap;
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) scores[j] = cap * tanh_approx(scores[j] * of_cap);
}

KERNELS_MULTIVERSION void mask_tile(float* scores, const HeadMask& head, std::int64_t position,
                                    std::int64_t first_key, std::int64_t keys, std::int64_t queries) {
  if (const float cap = head.mask.cap; cap > 0)
    for (std::int64_t i = 0; i < keys; ++i) cap_scores(scores + i * kQueryTile, cap, queries);
  if (head.slope != 0)
    for (std::int64_t i = 0; i < keys; ++i) {
      float* row = scores + i * kQueryTile;
      const int distance = static_cast<int>(first_key + i - position);
#pragma omp simd
      for (int j = 0; j < static_cast<int>(queries); ++j)
        row[j] += head.slope * static_cast<float>(distance - j);
    }
  const std::int64_t visible_first = position + 1 - first_key;  // keys that query 0 sees or could see
  for (std::int64_t i = std::max<std::int64_t>(visible_first, 0); i < keys; ++i)
    std::fill_n(scores + i * kQueryTile, std::min(i - visible_first + 1, queries), kMinusInfinity);
  if (!head.mask.hides_early_keys() || head.mask.first_key(position + queries - 1) <= first_key) return;
  for (std::int64_t j = 0; j < queries; ++j) {
    const std::int64_t hidden =
        std::clamp<std::int64_t>(head.mask.first_key(position + j) - first_key, 0, keys);
    for (std::int64_t i = 0; i < hidden; ++i) scores[i * kQueryTile + j] = kMinusInfinity;
  }
}

KERNELS_MULTIVERSION void online_softmax_tile(float* scores, OnlineSoftmax& state, std::int64_t keys,
                                              std::int64_t queries) {
  for (std::int64_t first = 0; first < queries; first += kLanes) {
    float maximum[kLanes], sum[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) maximum[lane] = state.maximum[first + lane];
    for (std::int64_t i = 0; i < keys; ++i) {
      const float* row = scores + i * kQueryTile + first;
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane)
        maximum[lane] = row[lane] > maximum[lane] ? row[lane] : maximum[lane];
    }
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const float factor = exp_approx(state.maximum[first + lane] - maximum[lane]);
      state.factor[first + lane] = factor;
      state.maximum[first + lane] = maximum[lane];
      sum[lane] = state.sum[first + lane] * factor;
    }
    for (std::int64_t i = 0; i < keys; ++i) {
      float* row = scores + i * kQueryTile + first;
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) {
        const float weight = exp_approx(row[lane] - maximum[lane]);
        row[lane] = weight;
        sum[lane] += weight;
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) state.sum[first + lane] = sum[lane];
  }
}

KERNELS_MULTIVERSION void multiply_rows(Rows rows, const float* factors, std::int64_t count, std::int64_t D) {
  for (std::int64_t i = 0; i < count; ++i)
    if (factors[i] != 1.0f) multiply(rows.row(i), factors[i], D);
}

KERNELS_MULTIVERSION void row_dots(float* delta, ConstRows dout, ConstRows out, std::int64_t rows,
                                   std::int64_t D) {
  for (std::int64_t i = 0; i < rows; ++i) delta[i] = dot(dout.row(i), out.row(i), D);
}

KERNELS_MULTIVERSION void softmax_gradient_tile(float* scores, float* dprobabilities, const float* lse,
                                                const float* delta, float scale, std::int64_t keys,
                                                std::int64_t queries, float cap) {
  const float of_cap = cap > 0 ? 1.0f / cap : 0.0f;
  for (std::int64_t i = 0; i < keys; ++i) {
    float* probability = scores + i * kQueryTile;
    float* gradient = dprobabilities + i * kQueryTile;
#pragma omp simd
    for (std::int64_t j = 0; j < queries; ++j) {
      const float p = exp_approx(probability[j] - lse[j]);
      // The cap's tanh is the capped score over the cap; a hidden score is -inf.
      const float tangent = p > 0 ? probability[j] * of_cap : 0.0f;
      probability[j] = p;
      gradient[j] = p * (gradient[j] - delta[j]) * scale * (1.0f - tangent * tangent);
    }
  }
}

QueryTile::QueryTile(Rows out, ConstRows queries, const HeadMask& mask, std::int64_t position,
                     std::int64_t rows, std::int64_t key_dim, std::int64_t value_dim)
    : out_(out), mask_(mask), position_(position), rows_(rows), key_dim_(key_dim), value_dim_(value_dim) {
  begin_softmax(state_, mask);
  const std::int64_t widest = std::max(key_dim, value_dim);
  queries_transposed_ = tile_scratch(3, widest);
  packed_values_ = queries_transposed_ + widest * kQueryTile;
  gathered_keys_ = packed_values_ + widest * kKeyTile;
  pack_transposed(queries_transposed_, queries, 1.0f / std::sqrt(static_cast<float>(key_dim)), rows, key_dim);
}

void QueryTile::add_tile(ConstRows keys, std::int64_t first_key, std::int64_t columns) {
  const std::int64_t width = padded(rows_);
  tile_product({scores_, kQueryTile}, matrix(keys), {queries_transposed_, kQueryTile}, false, columns, width,
               key_dim_);
  mask_tile(scores_, mask_, position_, first_key, columns, rows_);
  online_softmax_tile(scores_, state_, columns, width);
  if (begun_) multiply_rows(out_, state_.factor, rows_, value_dim_);
  tile_product_transposed(matrix(out_), {scores_, kQueryTile}, {packed_values_, value_dim_}, begun_, rows_,
                          value_dim_, columns);
  begun_ = true;
}

void QueryTile::finish(float* lse) {
  if (!begun_)
    for (std::int64_t i = 0; i < rows_; ++i) std::fill_n(out_.row(i), value_dim_, 0.0f);
  end_softmax(state_, lse, rows_);
  multiply_rows(out_, state_.factor, rows_, value_dim_);
}

GradientTile::GradientTile(std::int64_t D) : D_(D) {
  queries_transposed_ = tile_scratch(5, D);
  dout_transposed_ = queries_transposed_ + D * kQueryTile;
  packed_queries_ = dout_transposed_ + D * kQueryTile;
  packed_dout_ = packed_queries_ + kQueryTile * D;
  packed_keys_ = packed_dout_ + kQueryTile * D;
}

void GradientTile::begin(Rows dqueries, bool add_to_queries, ConstRows queries, ConstRows dout, ConstRows out,
                         const float* lse, std::int64_t position, std::int64_t rows) {
  position_ = position;
  rows_ = rows;
  dqueries_ = dqueries;
  add_to_queries_ = add_to_queries;
  pack_transposed(queries_transposed_, queries, 1.0f / std::sqrt(static_cast<float>(D_)), rows, D_);
  pack_transposed(dout_transposed_, dout, 1.0f, rows, D_);
  pack_rows(packed_queries_, queries, rows, D_);
  pack_rows(packed_dout_, dout, rows, D_);
  row_dots(delta_, dout, out, rows, D_);
  std::copy_n(lse, rows, lse_);
}

void GradientTile::add(Rows dkeys, Rows dvalues, ConstRows keys, ConstRows values, const HeadMask& mask,
                       std::int64_t first, std::int64_t end) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(D_));
  const std::int64_t width = padded(rows_), begin = std::max(first, mask.mask.first_key(position_));
  end = std::min(end, position_ + rows_);
  for (std::int64_t j = begin; j < end; j += kKeyTile) {
    const std::int64_t columns = std::min(kKeyTile, end - j), row = j - first;
    tile_product({scores_, kQueryTile}, matrix(from_row(keys, row)), {queries_transposed_, kQueryTile}, false,
                 columns, width, D_);
    mask_tile(scores_, mask, position_, j, columns, rows_);
    tile_product({dprobabilities_, kQueryTile}, matrix(from_row(values, row)), {dout_transposed_, kQueryTile},
                 false, columns, width, D_);
    softmax_gradient_tile(scores_, dprobabilities_, lse_, delta_, scale, columns, width, mask.mask.cap);
    tile_product(matrix(from_row(dvalues, row)), {scores_, kQueryTile}, {packed_dout_, D_}, true, columns, D_,
                 rows_);
    tile_product(matrix(from_row(dkeys, row)), {dprobabilities_, kQueryTile}, {packed_queries_, D_}, true,
                 columns, D_, rows_);
    pack_rows(packed_keys_, from_row(keys, row), columns, D_);
    tile_product_transposed(matrix(dqueries_), {dprobabilities_, kQueryTile}, {packed_keys_, D_},
                            add_to_queries_, rows_, D_, columns);
    add_to_queries_ = true;
  }
}

void GradientTile::finish() {
  if (!add_to_queries_) zero_rows(dqueries_, rows_, D_);
}

}  // namespace kernels::cpu
