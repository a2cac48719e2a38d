#include "kernels/gated_norm.h"

#include <cmath>

#include "kernels/parallel.h"
#include "kernels/row_chunks.h"
#include "kernels/vector_math.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

KERNELS_INLINE float gated(float inp, float gate) {
  return inp * gate * sigmoid_approx(gate).value;
}

// One group of a row; returns rstd.
KERNELS_MULTIVERSION float norm_group(float* out, const float* inp, const float* gate, const float* weight,
                                      float eps, std::int64_t width) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t c = 0; c < width; ++c) {
    out[c] = gated(inp[c], gate[c]);
    squares += out[c] * out[c];
  }
  const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) out[c] = out[c] * rstd * weight[c];
  return rstd;
}

// As RMSNorm's gradient, with u = inp silu(gate) as what is normed; du then divides between inp and gate.
KERNELS_MULTIVERSION void gradient_group(float* dinp, float* dgate, float* dweight, const float* dout,
                                         const float* inp, const float* gate, const float* weight, float rstd,
                                         std::int64_t width) {
  float projection = 0;
#pragma omp simd reduction(+ : projection)
  for (std::int64_t c = 0; c < width; ++c) {
    const float normed = gated(inp[c], gate[c]) * rstd;
    projection += dout[c] * weight[c] * normed;
    dweight[c] += dout[c] * normed;
  }
  const float slope = projection / static_cast<float>(width);
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) {
    const Sigmoid s = sigmoid_approx(gate[c]);
    const float x = inp[c], silu = gate[c] * s.value;
    const float du = rstd * (dout[c] * weight[c] - x * silu * rstd * slope);
    dinp[c] = du * silu;
    dgate[c] = du * x * s.value * (1.0f + gate[c] * s.complement);
  }
}

}  // namespace

void gated_norm_forward(float* out, float* rstd, const float* inp, const float* gate,
                        std::int64_t gate_stride, const float* weight, float eps, GatedNormShape s) {
  const std::int64_t width = s.C / s.G;
  parallel_ranges(s.R, 4 * s.C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t g = 0; g < s.G; ++g) {
        const float group_rstd =
            norm_group(out + r * s.C + g * width, inp + r * s.C + g * width,
                       gate + r * gate_stride + g * width, weight + g * width, eps, width);
        if (rstd != nullptr) rstd[r * s.G + g] = group_rstd;
      }
  });
}

void gated_norm_backward(float* dinp, float* dgate, std::int64_t dgate_stride, float* dweight,
                         const float* dout, const float* inp, const float* gate, std::int64_t gate_stride,
                         const float* weight, const float* rstd, GatedNormShape s) {
  const std::int64_t width = s.C / s.G;
  sum_over_row_chunks(
      s.R, s.C,
      [=](float* partial, std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          for (std::int64_t g = 0; g < s.G; ++g) {
            const std::int64_t at = r * s.C + g * width;
            gradient_group(dinp + at, dgate + r * dgate_stride + g * width, partial + g * width, dout + at,
                           inp + at, gate + r * gate_stride + g * width, weight + g * width,
                           rstd[r * s.G + g], width);
          }
      },
      [=](const float* partial) {
        for (std::int64_t c = 0; c < s.C; ++c) dweight[c] += partial[c];
      });
}

}  // namespace kernels::cpu
