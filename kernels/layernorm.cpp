#include "kernels/layernorm.h"

#include <cmath>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/row_chunks.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

struct Moments {
  float mean, rstd;
};

KERNELS_MULTIVERSION Moments layernorm_row(float* out, const float* inp, const float* weight,
                                           const float* bias, float eps, std::int64_t C) {
  const float width = static_cast<float>(C);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < C; ++c) sum += inp[c];
  const float mean = sum / width;

  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t c = 0; c < C; ++c) {
    const float centred = inp[c] - mean;
    squares += centred * centred;
  }
  const float rstd = 1.0f / std::sqrt(squares / width + eps);

#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) out[c] = (inp[c] - mean) * rstd * weight[c] + bias[c];
  return {mean, rstd};
}

// With normed = (inp - mean) rstd and scaled = dout weight:
// dinp += rstd (scaled - mean(scaled) - normed mean(scaled normed)).
KERNELS_MULTIVERSION void layernorm_gradient_row(float* dinp, float* dweight, float* dbias, const float* dout,
                                                 const float* inp, const float* weight, Moments moments,
                                                 std::int64_t C) {
  const float mean = moments.mean, rstd = moments.rstd;
  float scaled_sum = 0, projection = 0;
#pragma omp simd reduction(+ : scaled_sum, projection)
  for (std::int64_t c = 0; c < C; ++c) {
    const float normed = (inp[c] - mean) * rstd;
    const float scaled = dout[c] * weight[c];
    scaled_sum += scaled;
    projection += scaled * normed;
    dweight[c] += dout[c] * normed;
    dbias[c] += dout[c];
  }
  const float width = static_cast<float>(C);
  const float scaled_mean = scaled_sum / width;
  const float slope = projection / width;
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) {
    const float normed = (inp[c] - mean) * rstd;
    dinp[c] += rstd * (dout[c] * weight[c] - scaled_mean - normed * slope);
  }
}

// For a norm without parameters of its own.
std::vector<float> stand_in(const float* parameters, float value, std::int64_t C) {
  return parameters ? std::vector<float>() : std::vector<float>(static_cast<std::size_t>(C), value);
}

}  // namespace

void layernorm_forward(float* out, float* mean, float* rstd, const float* inp, const float* weight,
                       const float* bias, float eps, std::int64_t R, std::int64_t C) {
  const std::vector<float> ones = stand_in(weight, 1, C), zeros = stand_in(bias, 0, C);
  if (!weight) weight = ones.data();
  if (!bias) bias = zeros.data();
  parallel_ranges(R, C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const Moments moments = layernorm_row(out + r * C, inp + r * C, weight, bias, eps, C);
      if (mean) mean[r] = moments.mean;
      if (rstd) rstd[r] = moments.rstd;
    }
  });
}

void layernorm_backward(float* dinp, float* dweight, float* dbias, const float* dout, const float* inp,
                        const float* weight, const float* mean, const float* rstd, std::int64_t R,
                        std::int64_t C) {
  const std::vector<float> ones = stand_in(weight, 1, C);
  if (!weight) weight = ones.data();
  sum_over_row_chunks(
      R, 2 * C,
      [=](float* partial, std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          layernorm_gradient_row(dinp + r * C, partial, partial + C, dout + r * C, inp + r * C, weight,
                                 {mean[r], rstd[r]}, C);
      },
      [=](const float* partial) {
        for (std::int64_t c = 0; dweight && c < C; ++c) dweight[c] += partial[c];
        for (std::int64_t c = 0; dbias && c < C; ++c) dbias[c] += partial[C + c];
      });
}

}  // namespace kernels::cpu
