#include "kernels/qk_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/parallel.h"
#include "kernels/row_chunks.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// The vectors of a row that are normed by themselves: `width` elements from `begin` in the row and from
// `gain` in the weights, rstd in place `statistic` of the row's.
struct NormedPart {
  std::int64_t begin, gain, width, statistic;
};

std::int64_t parts_of_row(QkNormShape s) {
  return s.all_heads ? 2 : s.H + s.G;
}

NormedPart part_of_row(std::int64_t part, QkNormShape s) {
  if (s.all_heads)
    return part == 0 ? NormedPart{0, 0, s.H * s.D, 0} : NormedPart{s.H * s.D, s.H * s.D, s.G * s.D, s.H};
  return {part * s.D, part < s.H ? 0 : s.D, s.D, part};
}

KERNELS_MULTIVERSION float normed(float* out, const float* inp, const float* weight, float eps,
                                  std::int64_t width) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t c = 0; c < width; ++c) squares += inp[c] * inp[c];
  const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) out[c] = inp[c] * rstd * (weight ? weight[c] : 1.0f);
  return rstd;
}

// RMSNorm's gradient (kernels/rmsnorm.cpp) over its own input: gradient = rstd (scaled - normed mean(scaled
// normed)).
KERNELS_MULTIVERSION void normed_gradient(float* gradient, float* dweight, const float* inp,
                                          const float* weight, float rstd, std::int64_t width) {
  float projection = 0;
#pragma omp simd reduction(+ : projection)
  for (std::int64_t c = 0; c < width; ++c) {
    const float value = inp[c] * rstd;
    projection += gradient[c] * (weight ? weight[c] : 1.0f) * value;
    dweight[c] += gradient[c] * value;
  }
  const float slope = projection / static_cast<float>(width);
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c)
    gradient[c] = rstd * (gradient[c] * (weight ? weight[c] : 1.0f) - inp[c] * rstd * slope);
}

}  // namespace

void qk_norm_forward(float* out, float* rstd, const float* inp, const float* weight, float eps,
                     QkNormShape s) {
  const std::int64_t row_width = (s.H + 2 * s.G) * s.D;
  parallel_ranges(s.R, row_width, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* from = inp + r * row_width;
      float* to = out + r * row_width;
      for (std::int64_t i = 0; i < parts_of_row(s); ++i) {
        const NormedPart part = part_of_row(i, s);
        const float of_part = normed(to + part.begin, from + part.begin,
                                     weight ? weight + part.gain : nullptr, eps, part.width);
        if (rstd) rstd[r * (s.H + s.G) + part.statistic] = of_part;
      }
      const std::int64_t values = (s.H + s.G) * s.D;
      std::copy_n(from + values, s.G * s.D, to + values);
    }
  });
}

void qk_norm_backward(float* dqkv, float* dweight, const float* inp, const float* weight, const float* rstd,
                      QkNormShape s) {
  const std::int64_t row_width = (s.H + 2 * s.G) * s.D;
  const std::int64_t gains = s.all_heads ? (s.H + s.G) * s.D : 2 * s.D;
  sum_over_row_chunks(
      s.R, gains,
      [=](float* partial, std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          for (std::int64_t i = 0; i < parts_of_row(s); ++i) {
            const NormedPart part = part_of_row(i, s);
            normed_gradient(dqkv + r * row_width + part.begin, partial + part.gain,
                            inp + r * row_width + part.begin, weight ? weight + part.gain : nullptr,
                            rstd[r * (s.H + s.G) + part.statistic], part.width);
          }
      },
      [=](const float* partial) {
        for (std::int64_t c = 0; dweight && c < gains; ++c) dweight[c] += partial[c];
      });
}

}  // namespace kernels::cpu
