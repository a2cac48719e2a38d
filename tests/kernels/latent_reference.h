// Latent attention by its definition (kernels/latent_attention.h), as naive loops.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/latent_attention.h"
#include "tests/kernels/compare.h"

namespace test {

using kernels::LatentShape;

template <class Real>
struct LatentTensors {
  std::vector<Real> q, up, rotary, dout;  // rotary (B*T, H, P): each head its own here
};

// Key or value element of head h of token (b, t).
inline std::size_t latent_up_at(const LatentShape& s, std::int64_t b, std::int64_t t, std::int64_t h,
                                std::int64_t d) {
  return static_cast<std::size_t>(((b * s.T + t) * s.H + h) * (s.N + s.V) + d);
}
inline std::size_t latent_at(const LatentShape& s, std::int64_t b, std::int64_t t, std::int64_t h,
                             std::int64_t width, std::int64_t d) {
  return static_cast<std::size_t>(((b * s.T + t) * s.H + h) * width + d);
}

template <class Real>
struct LatentAttention {
  std::vector<Real> out, lse, dq, dkv;
};

// By the definition; gradients of the sum of out times dout. round: what is done to each intermediate result
// and to what comes out, log-sum-exps apart.
template <class Real, class Round = std::identity>
LatentAttention<Real> latent_attention_of(const LatentTensors<Real>& x, const LatentShape& s,
                                          const Round& round = {}) {
  const std::int64_t D = s.N + s.P, up_size = s.B * s.T * s.H * (s.N + s.V);
  LatentAttention<Real> a;
  a.out.assign(static_cast<std::size_t>(s.B * s.T * s.H * s.V), 0);
  a.lse.assign(static_cast<std::size_t>(s.B * s.H * s.T), 0);
  a.dq.assign(x.q.size(), 0);
  a.dkv.assign(x.up.size() + x.rotary.size(), 0);
  const auto key = [&](std::int64_t b, std::int64_t j, std::int64_t h, std::int64_t d) {
    return d < s.N ? x.up[latent_up_at(s, b, j, h, d)] : x.rotary[latent_at(s, b, j, h, s.P, d - s.N)];
  };
  const Real scale = 1 / std::sqrt(static_cast<Real>(D));
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t i = 0; i < s.T; ++i) {
        const std::int64_t begin = s.mask.window > 0 ? std::max<std::int64_t>(0, i - s.mask.window + 1) : 0;
        std::vector<Real> p(static_cast<std::size_t>(i + 1), 0), dp = p;
        Real highest = -INFINITY, sum = 0, delta = 0;
        for (std::int64_t j = begin; j <= i; ++j) {
          Real score = 0;
          for (std::int64_t d = 0; d < D; ++d) score += x.q[latent_at(s, b, i, h, D, d)] * key(b, j, h, d);
          p[static_cast<std::size_t>(j)] = round(score * scale);
          highest = std::max(highest, p[static_cast<std::size_t>(j)]);
        }
        for (std::int64_t j = begin; j <= i; ++j)
          sum += p[static_cast<std::size_t>(j)] = std::exp(p[static_cast<std::size_t>(j)] - highest);
        a.lse[static_cast<std::size_t>((b * s.H + h) * s.T + i)] = highest + std::log(sum);
        for (std::int64_t j = begin; j <= i; ++j) {
          const auto n = static_cast<std::size_t>(j);
          p[n] = round(p[n] / sum);
          for (std::int64_t d = 0; d < s.V; ++d) {
            const std::size_t value = latent_up_at(s, b, j, h, s.N + d), to = latent_at(s, b, i, h, s.V, d);
            a.out[to] += p[n] * x.up[value];
            a.dkv[value] += p[n] * x.dout[to];
            dp[n] += x.up[value] * x.dout[to];
          }
          dp[n] = round(dp[n]);
          delta += p[n] * dp[n];
        }
        for (std::int64_t j = begin; j <= i; ++j) {
          const auto n = static_cast<std::size_t>(j);
          const Real dscore = round(p[n] * (dp[n] - delta)) * scale;
          for (std::int64_t d = 0; d < D; ++d) {
            a.dq[latent_at(s, b, i, h, D, d)] += dscore * key(b, j, h, d);
            const std::size_t to =
                d < s.N ? latent_up_at(s, b, j, h, d)
                        : static_cast<std::size_t>(up_size) + latent_at(s, b, j, h, s.P, d - s.N);
            a.dkv[to] += dscore * x.q[latent_at(s, b, i, h, D, d)];
          }
        }
      }
  for (std::vector<Real>* const values : {&a.out, &a.dq, &a.dkv})
    for (Real& value : *values) value = round(value);
  return a;
}

inline LatentTensors<float> drawn_latents(const LatentShape& s) {
  const std::int64_t rows = s.B * s.T * s.H;
  return {normal_tensor(rows * (s.N + s.P), 1, 1.5f), normal_tensor(rows * (s.N + s.V), 2, 1.5f),
          normal_tensor(rows * s.P, 3, 1.5f), normal_tensor(rows * s.V, 4)};
}
inline LatentTensors<double> widened(const LatentTensors<float>& x) {
  return {to_double(x.q), to_double(x.up), to_double(x.rotary), to_double(x.dout)};
}

}  // namespace test
