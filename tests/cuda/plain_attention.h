// Attention as a plain implementation makes it in a narrow type: every tensor of the textbook formula is
// formed in fp32 and rounded. Its error is the yardstick of kernels that never store those tensors.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "tests/cuda/on_gpu.h"
#include "tests/kernels/reference.h"

namespace tests {

struct PlainAttention {
  std::vector<float> out, dqkv;
};

inline PlainAttention plain_attention(const std::vector<float>& qkv, const std::vector<float>& dout,
                                      kernels::AttentionShape s, cuda::Type type, bool causal = true) {
  const auto round = [type](float x) {
    cuda::with_type(type, [&x]<class T>(T) { x = cuda::to_float(cuda::from_float<T>(x)); });
    return x;
  };
  const float scale = 1 / std::sqrt(static_cast<float>(s.D));
  const std::int64_t width = (s.H + 2 * s.G) * s.D;
  const auto at = [&](std::int64_t b, std::int64_t t, std::int64_t head) {
    return (b * s.T + t) * width + head * s.D;
  };
  PlainAttention result{std::vector<float>(dout.size()), std::vector<float>(qkv.size())};
  const auto dot = [&](const float* x, const float* y) {
    float sum = 0;
    for (std::int64_t d = 0; d < s.D; ++d) sum += x[d] * y[d];
    return sum;
  };
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h) {
      const std::int64_t key_head = s.H + h / (s.H / s.G), value_head = key_head + s.G;
      std::vector<float> p(static_cast<std::size_t>(s.T * s.T)), ds(p.size());
      for (std::int64_t i = 0; i < s.T; ++i) {
        float* const row = &p[static_cast<std::size_t>(i * s.T)];
        const std::int64_t keys = causal ? i + 1 : s.T;
        float highest = -INFINITY, sum = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          row[j] = -INFINITY;
          if (!reference::sees(s.mask, i, j)) continue;
          const float distance = s.mask.alibi ? s.mask.slope(h, s.H) * static_cast<float>(j - i) : 0.0f;
          row[j] = round(dot(&qkv[at(b, i, h)], &qkv[at(b, j, key_head)]) * scale + distance);
          highest = std::max(highest, row[j]);
        }
        for (std::int64_t j = 0; j < keys; ++j) sum += row[j] = std::exp(row[j] - highest);
        for (std::int64_t j = 0; j < keys; ++j) row[j] = round(row[j] / sum);
        const std::int64_t o = ((b * s.T + i) * s.H + h) * s.D;
        for (std::int64_t d = 0; d < s.D; ++d) {
          float total = 0;
          for (std::int64_t j = 0; j < keys; ++j) total += row[j] * qkv[at(b, j, value_head) + d];
          result.out[o + d] = round(total);
        }
        float delta = 0;
        float* const gradients = &ds[static_cast<std::size_t>(i * s.T)];
        for (std::int64_t j = 0; j < keys; ++j) {
          gradients[j] = round(dot(&dout[o], &qkv[at(b, j, value_head)]));
          delta += gradients[j] * row[j];
        }
        for (std::int64_t j = 0; j < keys; ++j) gradients[j] = round(row[j] * (gradients[j] - delta));
        for (std::int64_t d = 0; d < s.D; ++d) {
          float total = 0;
          for (std::int64_t j = 0; j < keys; ++j) total += gradients[j] * qkv[at(b, j, key_head) + d];
          result.dqkv[at(b, i, h) + d] = round(total * scale);
        }
      }
      for (std::int64_t j = 0; j < s.T; ++j)
        for (std::int64_t d = 0; d < s.D; ++d) {
          float dk = 0, dv = 0;
          for (std::int64_t i = causal ? j : 0; i < s.T; ++i) {
            dk += ds[static_cast<std::size_t>(i * s.T + j)] * qkv[at(b, i, h) + d];
            dv += p[static_cast<std::size_t>(i * s.T + j)] * dout[((b * s.T + i) * s.H + h) * s.D + d];
          }
          float& dk_sum = result.dqkv[at(b, j, key_head) + d];
          float& dv_sum = result.dqkv[at(b, j, value_head) + d];
          dk_sum = round(dk_sum + dk * scale);
          dv_sum = round(dv_sum + dv);
        }
    }
  return result;
}

}  // namespace tests
