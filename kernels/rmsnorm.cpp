#include "kernels/rmsnorm.h"

#include <cmath>

#include "kernels/parallel.h"
#include "kernels/row_chunks.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// Returns rstd.
KERNELS_MULTIVERSION float rmsnorm_row(float* out, const float* inp, const float* weight, float eps,
                                       std::int64_t C) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t c = 0; c < C; ++c) squares += inp[c] * inp[c];
  const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(C) + eps);
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) out[c] = inp[c] * rstd * weight[c];
  return rstd;
}

// With normed = inp rstd and scaled = dout weight: dinp += rstd (scaled - normed mean(scaled normed)).
KERNELS_MULTIVERSION void rmsnorm_gradient_row(float* dinp, float* dweight, const float* dout,
                                               const float* inp, const float* weight, float rstd,
                                               std::int64_t C) {
  float projection = 0;
#pragma omp simd reduction(+ : projection)
  for (std::int64_t c = 0; c < C; ++c) {
    const float normed = inp[c] * rstd;
    projection += dout[c] * weight[c] * normed;
    dweight[c] += dout[c] * normed;
  }
  const float slope = projection / static_cast<float>(C);
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) dinp[c] += rstd * (dout[c] * weight[c] - inp[c] * rstd * slope);
}

}  // namespace

void rmsnorm_forward(StridedRows<float> out, float* rstd, StridedRows<const float> inp, const float* weight,
                     float eps, std::int64_t R, std::int64_t C) {
  parallel_ranges(R, C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float row_rstd = rmsnorm_row(out.row(r), inp.row(r), weight, eps, C);
      if (rstd) rstd[r] = row_rstd;
    }
  });
}

void rmsnorm_backward(StridedRows<float> dinp, float* dweight, StridedRows<const float> dout,
                      StridedRows<const float> inp, const float* weight, const float* rstd, std::int64_t R,
                      std::int64_t C) {
  sum_over_row_chunks(
      R, C,
      [=](float* partial, std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          rmsnorm_gradient_row(dinp.row(r), partial, dout.row(r), inp.row(r), weight, rstd[r], C);
      },
      [=](const float* partial) {
        if (dweight == nullptr) return;
        for (std::int64_t c = 0; c < C; ++c) dweight[c] += partial[c];
      });
}

void rmsnorm_forward(float* out, float* rstd, const float* inp, const float* weight, float eps,
                     std::int64_t R, std::int64_t C) {
  rmsnorm_forward({out, C}, rstd, {inp, C}, weight, eps, R, C);
}

void rmsnorm_backward(float* dinp, float* dweight, const float* dout, const float* inp, const float* weight,
                      const float* rstd, std::int64_t R, std::int64_t C) {
  rmsnorm_backward({dinp, C}, dweight, {dout, C}, {inp, C}, weight, rstd, R, C);
}

}  // namespace kernels::cpu
