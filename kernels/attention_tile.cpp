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
      // Of the cap; a hidden score is -inf.
      const float tangent = p > 0 ? probability[j] * of_cap : 0.0f;
      probability[j] = p;
      gradient[j] = p * (gradient[j] - delta[j]) * scale * (1.0f - tangent * tangent);
    }
  }
}

}  // namespace kernels::cpu
