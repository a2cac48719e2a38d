#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention_packed.h"
#include "kernels/attention_tile.h"
#include "kernels/blas_product.h"
#include "kernels/cached_tiles.h"
#include "kernels/parallel.h"
#include "kernels/tile_product.h"
#include "kernels/vector_math.h"

namespace kernels::cpu {
namespace {

Factor factor(ConstRows rows, bool transposed = false) {
  return {rows.data, rows.stride, transposed};
}

// scores (T, T) = a (T, D) b (T, D)^T
void head_scores(float* scores, ConstRows a, ConstRows b, AttentionShape s) {
  zero_rows(Rows{scores, s.T}, s.T, s.T);
  add_product({scores, s.T}, factor(a), factor(b, true), s.T, s.T, s.D);
}

}  // namespace

// ------------------------------------------------------------------------------------ flash

void attention_flash_forward(float* out, float* lse, const float* qkv, AttentionShape s) {
  if (packs_attention<float>(s.T)) return packed_attention_forward(out, lse, qkv, s, s.sinks);
  const PackedHeads<const float> packed{qkv, s};
  const std::int64_t group = s.H / s.G;
  each_query_tile(s, kQueryTile, [&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t rows) {
    attend_query_tile(
        from_row(output_rows(out, s, b, h), first), lse ? lse + (b * s.H + h) * s.T + first : nullptr,
        from_row(packed.queries(b, h), first), DirectTiles<float>{packed.keys(b, h / group)},
        DirectTiles<float>{packed.values(b, h / group)}, mask_of_head(s, h), first, rows, s.D, s.D);
  });
}

void attention_sinks_backward(float* dsinks, const float* dout, const float* out, const float* lse,
                              AttentionShape s) {
  parallel_ranges(s.H, s.B * s.T * s.D, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t h = begin; h < end; ++h) {
      double sum = 0;
      for (std::int64_t b = 0; b < s.B; ++b)
        for (std::int64_t first = 0; first < s.T; first += kQueryTile) {
          float delta[kQueryTile];
          const std::int64_t rows = std::min(kQueryTile, s.T - first);
          row_dots(delta, from_row(output_rows(dout, s, b, h), first),
                   from_row(output_rows(out, s, b, h), first), rows, s.D);
          const float* const of_rows = lse + (b * s.H + h) * s.T + first;
          for (std::int64_t i = 0; i < rows; ++i)
            sum -= static_cast<double>(std::exp(s.sinks[h] - of_rows[i]) * delta[i]);
        }
      dsinks[h] += static_cast<float>(sum);
    }
  });
}

void attention_flash_backward(float* dqkv, const float* dout, const float* qkv, const float* out,
                              const float* lse, AttentionShape s) {
  if (packs_attention<float>(s.T)) return packed_attention_backward(dqkv, dout, qkv, out, lse, s);
  const PackedHeads<const float> packed{qkv, s};
  const PackedHeads<float> gradients{dqkv, s};
  const std::int64_t group = s.H / s.G;
  // A task owns a key/value head and the query heads that read it, so no two tasks add to the same gradient.
  parallel_tasks(s.B * s.G, [&](std::int64_t task) {
    const std::int64_t b = task / s.G, g = task % s.G;
    const Rows dkeys = gradients.keys(b, g), dvalues = gradients.values(b, g);
    zero_rows(dkeys, s.T, s.D);
    zero_rows(dvalues, s.T, s.D);
    GradientTile tile(s.D);
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
      for (std::int64_t i = 0; i < s.T; i += kQueryTile) {
        tile.begin(from_row(gradients.queries(b, h), i), false, from_row(packed.queries(b, h), i),
                   from_row(output_rows(dout, s, b, h), i), from_row(output_rows(out, s, b, h), i),
                   lse + (b * s.H + h) * s.T + i, i, std::min(kQueryTile, s.T - i));
        tile.add(dkeys, dvalues, packed.keys(b, g), packed.values(b, g), mask_of_head(s, h), 0, s.T);
        tile.finish();
      }
  });
}

// ------------------------------------------------------------------------------------ standard

namespace {

// Raw scores of row i become probabilities over the keys that it sees, and zero elsewhere. With a sink, they
// add up to less than 1: the rest is the sink's share.
KERNELS_MULTIVERSION void causal_softmax(float* scores, const HeadMask& head, float scale, std::int64_t T) {
  for (std::int64_t i = 0; i < T; ++i) {
    float* row = scores + i * T;
    const std::int64_t begin = head.mask.first_key(i);
    if (head.slope != 0)
      for (std::int64_t j = begin; j <= i; ++j) row[j] += head.slope / scale * static_cast<float>(j - i);
    float maximum = kMinusInfinity;
#pragma omp simd reduction(max : maximum)
    for (std::int64_t j = begin; j <= i; ++j) maximum = row[j] > maximum ? row[j] : maximum;
    if (head.sink) maximum = std::max(maximum, *head.sink / scale);
    float sum = head.sink ? std::exp(*head.sink - maximum * scale) : 0.0f;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = begin; j <= i; ++j) {
      row[j] = exp_approx((row[j] - maximum) * scale);
      sum += row[j];
    }
    multiply(row + begin, 1.0f / sum, i + 1 - begin);
    std::fill_n(row, begin, 0.0f);
    std::fill(row + i + 1, row + T, 0.0f);
  }
}

// dprobabilities become gradients of the raw scores (without the scale). The sink has the rest of the row's
// probability; its gradient is added to, or is null.
KERNELS_MULTIVERSION void causal_softmax_gradient(float* dprobabilities, const float* probabilities,
                                                  std::int64_t T, double* dsink) {
  for (std::int64_t i = 0; i < T; ++i) {
    float* gradient = dprobabilities + i * T;
    const float* probability = probabilities + i * T;
    const float delta = dot(gradient, probability, i + 1);
    if (dsink) {
      double share = 1;
      for (std::int64_t j = 0; j <= i; ++j) share -= static_cast<double>(probability[j]);
      *dsink -= share * static_cast<double>(delta);
    }
#pragma omp simd
    for (std::int64_t j = 0; j <= i; ++j) gradient[j] = probability[j] * (gradient[j] - delta);
    std::fill(gradient + i + 1, gradient + T, 0.0f);
  }
}

}  // namespace

void attention_standard_forward(float* out, float* probabilities, const float* qkv, AttentionShape s) {
  const PackedHeads<const float> packed{qkv, s};
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.D));
  parallel_tasks(s.B * s.H, [&](std::int64_t task) {
    const std::int64_t b = task / s.H, h = task % s.H, g = h / (s.H / s.G);
    float* scores = probabilities + task * s.T * s.T;
    const Rows head_out = output_rows(out, s, b, h);
    head_scores(scores, packed.queries(b, h), packed.keys(b, g), s);
    causal_softmax(scores, mask_of_head(s, h), scale, s.T);
    zero_rows(head_out, s.T, s.D);
    add_product(matrix(head_out), {scores, s.T}, factor(packed.values(b, g)), s.T, s.D, s.T);
  });
}

void attention_standard_backward(float* dqkv, float* scratch_dprobabilities, const float* dout,
                                 const float* qkv, const float* probabilities, AttentionShape s,
                                 float* dsinks) {
  std::vector<double> of_heads(static_cast<std::size_t>(dsinks ? s.B * s.H : 0));
  const PackedHeads<const float> packed{qkv, s};
  const PackedHeads<float> gradients{dqkv, s};
  const std::int64_t group = s.H / s.G;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.D));
  parallel_tasks(s.B * s.G, [&](std::int64_t task) {
    const std::int64_t b = task / s.G, g = task % s.G;
    const Rows dkeys = gradients.keys(b, g), dvalues = gradients.values(b, g);
    zero_rows(dkeys, s.T, s.D);
    zero_rows(dvalues, s.T, s.D);
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
      const ConstRows queries = packed.queries(b, h), upward = output_rows(dout, s, b, h);
      const Rows dqueries = gradients.queries(b, h);
      const float* head_probabilities = probabilities + (b * s.H + h) * s.T * s.T;
      float* dscores = scratch_dprobabilities + (b * s.H + h) * s.T * s.T;
      head_scores(dscores, upward, packed.values(b, g), s);
      add_product(matrix(dvalues), {head_probabilities, s.T, true}, factor(upward), s.T, s.D, s.T);
      causal_softmax_gradient(dscores, head_probabilities, s.T,
                              dsinks ? &of_heads[static_cast<std::size_t>(b * s.H + h)] : nullptr);
      zero_rows(dqueries, s.T, s.D);
      add_product(matrix(dqueries), {dscores, s.T}, factor(packed.keys(b, g)), s.T, s.D, s.T, scale);
      add_product(matrix(dkeys), {dscores, s.T, true}, factor(queries), s.T, s.D, s.T, scale);
    }
  });
  for (std::int64_t head = 0; dsinks && head < s.B * s.H; ++head)
    dsinks[head % s.H] += static_cast<float>(of_heads[static_cast<std::size_t>(head)]);
}

// ------------------------------------------------------------------------------------ cached

void kv_append(const KvCache& cache, const float* qkv, const std::int32_t* positions, AttentionShape s) {
  const PackedHeads<const float> packed{qkv, s};
  parallel_ranges(s.B * s.G, 2 * s.T * s.D, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) {
      const std::int64_t b = head / s.G, g = head % s.G;
      const CachedTiles keys(cache, CachedTiles::kKeys, s, b, g);
      const CachedTiles values(cache, CachedTiles::kValues, s, b, g);
      for (std::int64_t t = 0; t < s.T; ++t) {
        keys.write(positions[b] + t, packed.keys(b, g).row(t));
        values.write(positions[b] + t, packed.values(b, g).row(t));
      }
    }
  });
}

namespace {

// Decoding reads the whole cache for a handful of queries. The keys of one head are cut into at most
// kMaxSplits parts of at least kMinKeysInSplit, which threads work on independently ("flash-decoding"); how
// they are cut depends on the number of keys alone, so the result does not depend on the number of threads.
constexpr std::int64_t kMaxSplits = 32;
constexpr std::int64_t kMinKeysInSplit = 256;
// At most so many queries of one key/value head (a group's heads times new tokens) are read against each key
// as the key streams by.
constexpr std::int64_t kMaxStreamedQueries = 16;

std::int64_t split_count(std::int64_t keys) {
  return std::clamp<std::int64_t>(keys / kMinKeysInSplit, 1, kMaxSplits);
}

// Queries of one key/value head; query r (of count) sees the keys from first[r] to before visible[r].
struct StreamedQueries {
  const float* rows[kMaxStreamedQueries] = {};
  float slopes[kMaxStreamedQueries] = {};  // ALiBi's
  const float* sinks[kMaxStreamedQueries] = {};
  std::int64_t first[kMaxStreamedQueries] = {};
  std::int64_t visible[kMaxStreamedQueries] = {};
  std::int64_t count = 0;
  float cap = 0;  // of scores
};

// The sums so far. out (count, D): unnormalised sums of exp(score - maximum[r]) times values; sum[r]: the
// sums of the exponentials themselves.
struct StreamedSums {
  float *out, *maximum, *sum;
};

// Adds `keys` <= kKeyTile keys and their values, the first of which is key number `first`.
KERNELS_MULTIVERSION void attend_streamed_tile(StreamedSums to, const StreamedQueries& queries,
                                               const float* k, const float* v, std::int64_t first,
                                               std::int64_t keys, std::int64_t D) {
  alignas(64) float scores[kMaxStreamedQueries][kKeyTile];
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  // The next tile's rows follow in memory, unless the cache is copied first. They are asked for row by row,
  // since as many requests at once would wait for each other.
  const auto ask_for_next = [=](const float* row) {
    constexpr std::int64_t kLine = 64 / sizeof(float);
    for (std::int64_t d = 0; d < D; d += kLine) ask_for(row + kKeyTile * D + d);
  };
  for (std::int64_t j = 0; j < keys; ++j) {
    ask_for_next(k + j * D);
    for (std::int64_t r = 0; r < queries.count; ++r)
      scores[r][j] = scale * dot(queries.rows[r], k + j * D, D);
  }
  for (std::int64_t r = 0; r < queries.count; ++r) {
    const std::int64_t seen = std::clamp<std::int64_t>(queries.visible[r] - first, 0, keys);
    const std::int64_t begin = std::clamp<std::int64_t>(queries.first[r] - first, 0, seen);
    if (queries.cap > 0) cap_scores(scores[r], queries.cap, keys);
    if (queries.slopes[r] != 0)
      for (std::int64_t j = begin; j < seen; ++j)
        scores[r][j] += queries.slopes[r] * static_cast<float>(first + j + 1 - queries.visible[r]);
    float highest = to.maximum[r];
#pragma omp simd reduction(max : highest)
    for (std::int64_t j = begin; j < seen; ++j) highest = scores[r][j] > highest ? scores[r][j] : highest;
    float tile_sum = 0;
#pragma omp simd reduction(+ : tile_sum)
    for (std::int64_t j = begin; j < seen; ++j) {
      scores[r][j] = exp_approx(scores[r][j] - highest);
      tile_sum += scores[r][j];
    }
    std::fill(scores[r], scores[r] + begin, 0.0f);
    std::fill(scores[r] + seen, scores[r] + keys, 0.0f);
    if (highest != to.maximum[r]) {
      const float factor = exp_approx(to.maximum[r] - highest);
      multiply(to.out + r * D, factor, D);
      to.sum[r] *= factor;
      to.maximum[r] = highest;
    }
    to.sum[r] += tile_sum;
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    const float* value = v + j * D;
    ask_for_next(value);
    for (std::int64_t r = 0; r < queries.count; ++r) {
      const float weight = scores[r][j];
      float* row = to.out + r * D;
#pragma omp simd
      for (std::int64_t d = 0; d < D; ++d) row[d] += weight * value[d];
    }
  }
}

// Goes over the keys begin..end. Only the first part of the keys takes the sinks in.
void attend_streamed(StreamedSums to, const StreamedQueries& queries, const CachedTiles& keys,
                     const CachedTiles& values, std::int64_t begin, std::int64_t end, bool is_first,
                     std::int64_t D) {
  std::fill_n(to.out, queries.count * D, 0.0f);
  for (std::int64_t r = 0; r < queries.count; ++r) {
    const float* const sink = is_first ? queries.sinks[r] : nullptr;
    to.maximum[r] = sink ? *sink : kMinusInfinity;
    to.sum[r] = sink ? 1.0f : 0.0f;
  }
  float* const gathered = tile_scratch(2, D);
  for (std::int64_t first = begin; first < end; first += kKeyTile) {
    const std::int64_t count = std::min(kKeyTile, end - first);
    attend_streamed_tile(to, queries, keys.tile(first, count, gathered).data,
                         values.tile(first, count, gathered + D * kKeyTile).data, first, count, D);
  }
}

// out (D) = the splits' unnormalised rows, brought to their common maximum, divided by the sum of their sums.
// Row, maximum and sum of split i lie i strides on.
KERNELS_MULTIVERSION void combine_splits(float* out, const float* rows, const float* maxima,
                                         const float* sums, std::int64_t splits, std::int64_t stride,
                                         std::int64_t D) {
  float highest = kMinusInfinity;
  for (std::int64_t i = 0; i < splits; ++i) highest = std::max(highest, maxima[i * stride]);
  float total = 0;
  std::fill_n(out, D, 0.0f);
  for (std::int64_t i = 0; i < splits; ++i) {
    const float factor = exp_approx(maxima[i * stride] - highest);
    const float* row = rows + i * stride;
    total += factor * sums[i * stride];
#pragma omp simd
    for (std::int64_t d = 0; d < D; ++d) out[d] += factor * row[d];
  }
  multiply(out, 1.0f / total, D);
}

// Each (sequence, key/value head) has T * H/G queries, and reads its keys and values once for all of them.
void attention_cached_streamed(float* out, const float* qkv, const KvCache& cache,
                               const std::int32_t* positions, AttentionShape s) {
  const PackedHeads<const float> packed{qkv, s};
  const std::int64_t group = s.H / s.G;
  const std::int64_t count = s.T * group;
  const std::int64_t most_keys = *std::max_element(positions, positions + s.B) + s.T;
  const std::int64_t max_splits = split_count(most_keys);

  // For every (sequence, key/value head, split): count rows of D, count maxima, count sums.
  const std::int64_t partial_size = count * (s.D + 2);
  static thread_local std::vector<float> storage;
  storage.resize(static_cast<std::size_t>(s.B * s.G * max_splits * partial_size));
  float* partials = storage.data();

  parallel_ranges(
      s.B * s.G * max_splits, 2 * s.D * most_keys / max_splits, [&](std::int64_t begin, std::int64_t end) {
        StreamedQueries queries{.count = count, .cap = s.mask.cap};
        for (std::int64_t task = begin; task < end; ++task) {
          const std::int64_t head = task / max_splits, split = task % max_splits;
          const std::int64_t b = head / s.G, g = head % s.G;
          const std::int64_t from = s.mask.first_key(positions[b]);
          const std::int64_t keys = positions[b] + s.T - from, splits = split_count(keys);
          if (split >= splits) continue;
          for (std::int64_t r = 0; r < count; ++r) {
            queries.rows[r] = packed.queries(b, g * group + r % group).row(r / group);
            queries.visible[r] = positions[b] + r / group + 1;
            queries.first[r] = s.mask.first_key(positions[b] + r / group);
            const HeadMask mask = mask_of_head(s, g * group + r % group);
            queries.slopes[r] = mask.slope;
            queries.sinks[r] = mask.sink;
          }
          float* rows = partials + task * partial_size;
          attend_streamed({rows, rows + count * s.D, rows + count * (s.D + 1)}, queries,
                          CachedTiles(cache, CachedTiles::kKeys, s, b, g),
                          CachedTiles(cache, CachedTiles::kValues, s, b, g), from + keys * split / splits,
                          from + keys * (split + 1) / splits, split == 0, s.D);
        }
      });

  for (std::int64_t head = 0; head < s.B * s.G; ++head) {
    const std::int64_t b = head / s.G, g = head % s.G;
    const std::int64_t splits = split_count(positions[b] + s.T - s.mask.first_key(positions[b]));
    const float* rows = partials + head * max_splits * partial_size;
    for (std::int64_t r = 0; r < count; ++r)
      combine_splits(output_rows(out, s, b, g * group + r % group).row(r / group), rows + r * s.D,
                     rows + count * s.D + r, rows + count * (s.D + 1) + r, splits, partial_size, s.D);
  }
}

}  // namespace

void attention_cached(float* out, const float* qkv, const KvCache& cache, const std::int32_t* positions,
                      AttentionShape s) {
  // A prompt longer than the cache no longer has its own first keys there.
  if (s.T > 1 && s.T > cache.tokens()) {
    attention_flash_forward(out, nullptr, qkv, s);
    return;
  }
  const std::int64_t group = s.H / s.G;
  if (s.T * group <= kMaxStreamedQueries) {
    attention_cached_streamed(out, qkv, cache, positions, s);
    return;
  }
  if (packs_attention<float>(s.T)) return packed_attention_cached(out, qkv, cache, positions, s);
  const PackedHeads<const float> packed{qkv, s};
  each_query_tile(s, kQueryTile, [&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t rows) {
    attend_query_tile(from_row(output_rows(out, s, b, h), first), nullptr,
                      from_row(packed.queries(b, h), first),
                      CachedTiles(cache, CachedTiles::kKeys, s, b, h / group),
                      CachedTiles(cache, CachedTiles::kValues, s, b, h / group), mask_of_head(s, h),
                      positions[b] + first, rows, s.D, s.D);
  });
}

}  // namespace kernels::cpu

namespace kernels {

float AttentionMask::slope(std::int64_t h, std::int64_t H) const {
  const std::int64_t power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(H)));
  const bool further = h >= power;
  const double step = -8.0 / static_cast<double>(further ? 2 * power : power);
  return static_cast<float>(std::exp2(step * static_cast<double>(further ? 2 * (h - power) + 1 : h + 1)));
}

}  // namespace kernels
