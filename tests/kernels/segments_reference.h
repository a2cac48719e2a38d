// The oracle of attention between segments of a sequence (kernels/attention_segments.h), one scalar at a
// time, in the arithmetic of Real: each query looks at all keys that there are, and at each one's position.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention_segments.h"
#include "tests/kernels/reference.h"

namespace reference {

// Keys and values of a rank: rows are `stride` elements apart, a row has G heads of keys, then G of values.
template <class Real>
struct SegmentKeys {
  kernels::ContextPart part;
  const Real* kv = nullptr;
  Real* dkv = nullptr;
  std::int64_t stride = 0;
};

// A head's queries, and the keys that they see.
template <class Real>
class SegmentHead {
 public:
  SegmentHead(kernels::AttentionShape s, std::int64_t b, std::int64_t h) : s_(s), b_(b), h_(h) {}

  std::int64_t query(std::int64_t i) const { return packed(s_, b_, i, h_, 0); }
  std::int64_t out(std::int64_t i) const { return ((b_ * s_.T + i) * s_.H + h_) * s_.D; }
  std::int64_t row(std::int64_t i) const { return (b_ * s_.H + h_) * s_.T + i; }
  std::int64_t key(const SegmentKeys<Real>& k, std::int64_t j) const {
    return (b_ * s_.T + j) * k.stride + h_ / (s_.H / s_.G) * s_.D;
  }
  std::int64_t value(const SegmentKeys<Real>& k, std::int64_t j) const { return key(k, j) + s_.G * s_.D; }
  Real scale() const { return 1 / std::sqrt(static_cast<Real>(s_.D)); }

  // visit(keys, row, score) of all that query i, at `position`, sees.
  template <class Visit>
  void each_seen(const Real* qkv, std::int64_t i, std::int64_t position,
                 const std::vector<SegmentKeys<Real>>& keys, const Visit& visit) const {
    for (const SegmentKeys<Real>& k : keys)
      for (std::int64_t j = 0; j < s_.T; ++j) {
        const std::int64_t p = k.part.position(j, s_.T);
        if (p > position || !sees(s_.mask, position, p)) continue;
        Real score = 0;
        for (std::int64_t d = 0; d < s_.D; ++d) score += qkv[query(i) + d] * k.kv[key(k, j) + d];
        visit(k, j, score * scale());
      }
  }

 private:
  kernels::AttentionShape s_;
  std::int64_t b_, h_;
};

template <class Real, class Act>
void each_segment_head(kernels::AttentionShape s, const Act& act) {
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h) act(SegmentHead<Real>(s, b, h));
}

// out (B, T, H * D), lse (B, H, T), which may be null.
template <class Real>
void attention_segments_forward(Real* out, Real* lse, const Real* qkv, kernels::ContextPart queries,
                                const std::vector<SegmentKeys<Real>>& keys, kernels::AttentionShape s) {
  each_segment_head<Real>(s, [&](const SegmentHead<Real>& head) {
    for (std::int64_t i = 0; i < s.T; ++i) {
      const std::int64_t position = queries.position(i, s.T);
      Real highest = -std::numeric_limits<Real>::infinity(), sum = 0;
      head.each_seen(qkv, i, position, keys,
                     [&](const auto&, std::int64_t, Real score) { highest = std::max(highest, score); });
      for (std::int64_t d = 0; d < s.D; ++d) out[head.out(i) + d] = 0;
      head.each_seen(qkv, i, position, keys, [&](const auto& k, std::int64_t j, Real score) {
        const Real weight = std::exp(score - highest);
        sum += weight;
        for (std::int64_t d = 0; d < s.D; ++d) out[head.out(i) + d] += weight * k.kv[head.value(k, j) + d];
      });
      if (sum > 0)
        for (std::int64_t d = 0; d < s.D; ++d) out[head.out(i) + d] /= sum;
      if (lse) lse[head.row(i)] = highest + std::log(sum);
    }
  });
}

// Given out and lse over all keys there are: the queries' part of dqkv += and dkv += of these keys' share.
template <class Real>
void attention_segments_backward(Real* dqkv, const Real* dout, const Real* qkv, const Real* out,
                                 const Real* lse, kernels::ContextPart queries,
                                 const std::vector<SegmentKeys<Real>>& keys, kernels::AttentionShape s) {
  each_segment_head<Real>(s, [&](const SegmentHead<Real>& head) {
    for (std::int64_t i = 0; i < s.T; ++i) {
      const Real* const upward = dout + head.out(i);
      Real mean = 0;
      for (std::int64_t d = 0; d < s.D; ++d) mean += upward[d] * out[head.out(i) + d];
      head.each_seen(qkv, i, queries.position(i, s.T), keys, [&](const auto& k, std::int64_t j, Real score) {
        const Real probability = std::exp(score - lse[head.row(i)]);
        Real dprobability = 0;
        for (std::int64_t d = 0; d < s.D; ++d) dprobability += upward[d] * k.kv[head.value(k, j) + d];
        const Real dscore = probability * (dprobability - mean) * head.scale();
        for (std::int64_t d = 0; d < s.D; ++d) {
          dqkv[head.query(i) + d] += dscore * k.kv[head.key(k, j) + d];
          k.dkv[head.key(k, j) + d] += dscore * qkv[head.query(i) + d];
          k.dkv[head.value(k, j) + d] += probability * upward[d];
        }
      });
    }
  });
}

// out and lse over two sets of keys, from those over each.
template <class Real>
void attention_merge(Real* out, Real* lse, const Real* part, const Real* part_lse,
                     kernels::AttentionShape s) {
  each_segment_head<Real>(s, [&](const SegmentHead<Real>& head) {
    for (std::int64_t i = 0; i < s.T; ++i) {
      const Real other = part_lse[head.row(i)], before = lse[head.row(i)];
      if (std::isinf(other)) continue;  // it saw no key
      const Real all = std::isinf(before) ? other : before + std::log1p(std::exp(other - before));
      for (std::int64_t d = 0; d < s.D; ++d)
        out[head.out(i) + d] =
            std::exp(before - all) * out[head.out(i) + d] + std::exp(other - all) * part[head.out(i) + d];
      lse[head.row(i)] = all;
    }
  });
}

}  // namespace reference
