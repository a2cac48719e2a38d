#include "kernels/attention_segments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

KERNELS_MULTIVERSION float dot(const float* a, const float* b, std::int64_t D) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t d = 0; d < D; ++d) sum += a[d] * b[d];
  return sum;
}

KERNELS_MULTIVERSION void add_multiple(float* to, float factor, const float* row, std::int64_t D) {
#pragma omp simd
  for (std::int64_t d = 0; d < D; ++d) to[d] += factor * row[d];
}

// visit(keys, row, position) for each key that a query at `position` sees.
template <class Visit>
void each_seen(std::span<const SegmentKeys> keys, const AttentionShape& s, std::int64_t position,
               Visit visit) {
  const std::int64_t first_seen = s.mask.first_key(position), half = s.T / 2;
  for (const SegmentKeys& of_rank : keys)
    for (std::int64_t begin = 0; begin < s.T; begin += std::max<std::int64_t>(half, 1)) {
      const std::int64_t first = of_rank.part.position(begin, s.T);  // of the segment
      const std::int64_t from = std::max(first, first_seen), to = std::min(first + half, position + 1);
      for (std::int64_t p = from; p < to; ++p) visit(of_rank, begin + p - first, p);
    }
}

struct Head {
  AttentionShape s;
  std::int64_t b, h;
  std::int64_t group() const { return h / (s.H / s.G); }
  std::int64_t width() const { return (s.H + 2 * s.G) * s.D; }
  std::int64_t query(std::int64_t i) const { return (b * s.T + i) * width() + h * s.D; }
  std::int64_t out(std::int64_t i) const { return ((b * s.T + i) * s.H + h) * s.D; }
  std::int64_t row(std::int64_t i) const { return (b * s.H + h) * s.T + i; }
  std::int64_t key(const SegmentKeys& k, std::int64_t row) const {
    return (b * s.T + row) * k.stride + group() * s.D;
  }
  std::int64_t value(const SegmentKeys& k, std::int64_t row) const { return key(k, row) + s.G * s.D; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(s.D)); }
  float score(float product, float slope, std::int64_t distance) const {
    return product * scale() - slope * static_cast<float>(distance);
  }
  float slope() const { return s.mask.alibi ? s.mask.slope(h, s.H) : 0.0f; }
};

}  // namespace

void attention_segments_forward(float* out, float* lse, const float* qkv, ContextPart queries,
                                std::span<const SegmentKeys> keys, AttentionShape s) {
  parallel_tasks(s.B * s.H, [&](std::int64_t task) {
    const Head head{s, task / s.H, task % s.H};
    const float slope = head.slope();
    std::vector<float> scores;
    for (std::int64_t i = 0; i < s.T; ++i) {
      const std::int64_t position = queries.position(i, s.T);
      const float* const query = qkv + head.query(i);
      scores.clear();
      each_seen(keys, s, position, [&](const SegmentKeys& k, std::int64_t row, std::int64_t p) {
        scores.push_back(head.score(dot(query, k.kv + head.key(k, row), s.D), slope, position - p));
      });
      float* const to = out + head.out(i);
      std::fill_n(to, s.D, 0.0f);
      const float maximum = scores.empty() ? 0.0f : *std::max_element(scores.begin(), scores.end());
      float sum = 0;
      for (float& score : scores) sum += score = std::exp(score - maximum);
      std::size_t next = 0;
      each_seen(keys, s, position, [&](const SegmentKeys& k, std::int64_t row, std::int64_t) {
        add_multiple(to, scores[next++] / sum, k.kv + head.value(k, row), s.D);
      });
      if (lse) lse[head.row(i)] = scores.empty() ? kMinusInfinity : maximum + std::log(sum);
    }
  });
}

void attention_segments_backward(float* dqkv, const float* dout, const float* qkv, const float* out,
                                 const float* lse, ContextPart queries, std::span<const SegmentKeys> keys,
                                 AttentionShape s) {
  // A task owns a key/value head and the query heads that read it.
  parallel_tasks(s.B * s.G, [&](std::int64_t task) {
    const std::int64_t group = s.H / s.G, b = task / s.G;
    for (std::int64_t h = task % s.G * group; h < (task % s.G + 1) * group; ++h) {
      const Head head{s, b, h};
      const float slope = head.slope(), scale = head.scale();
      for (std::int64_t i = 0; i < s.T; ++i) {
        const std::int64_t position = queries.position(i, s.T);
        const float *const query = qkv + head.query(i), *const upward = dout + head.out(i);
        const float delta = dot(upward, out + head.out(i), s.D);
        float* const dquery = dqkv + head.query(i);
        each_seen(keys, s, position, [&](const SegmentKeys& k, std::int64_t row, std::int64_t p) {
          const float *const key = k.kv + head.key(k, row), *const value = k.kv + head.value(k, row);
          const float score = head.score(dot(query, key, s.D), slope, position - p);
          const float probability = std::exp(score - lse[head.row(i)]);
          const float dscore = probability * (dot(upward, value, s.D) - delta) * scale;
          add_multiple(dquery, dscore, key, s.D);
          add_multiple(k.dkv + head.key(k, row), dscore, query, s.D);
          add_multiple(k.dkv + head.value(k, row), probability, upward, s.D);
        });
      }
    }
  });
}

void attention_merge(float* out, float* lse, const float* part, const float* part_lse, AttentionShape s) {
  parallel_tasks(s.B * s.H, [&](std::int64_t task) {
    const Head head{s, task / s.H, task % s.H};
    for (std::int64_t i = 0; i < s.T; ++i) {
      float& whole = lse[head.row(i)];
      const float other = part_lse[head.row(i)];
      if (other == kMinusInfinity) continue;
      const float high = std::max(whole, other), sum = std::exp(whole - high) + std::exp(other - high);
      const float own = std::exp(whole - high) / sum, its = std::exp(other - high) / sum;
      float* const to = out + head.out(i);
      for (std::int64_t d = 0; d < s.D; ++d) to[d] = own * to[d] + its * part[head.out(i) + d];
      whole = high + std::log(sum);
    }
  });
}

}  // namespace kernels::cpu
