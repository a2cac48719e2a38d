#include "kernels/activation.h"

#include "kernels/bf16_values.h"
#include "kernels/normal_tail.h"
#include "kernels/parallel.h"
#include "kernels/vector_math.h"

namespace kernels::cpu {
namespace {

// GELU's tanh form, 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), is x * sigmoid(2u): one
// exponential, and no cancellation where tanh(u) nears -1.
constexpr float kTwiceSqrt2OverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

KERNELS_INLINE Sigmoid gelu_gate(float x) {
  return sigmoid_approx(kTwiceSqrt2OverPi * x * (1.0f + kCubic * x * x));
}

template <class T>
KERNELS_INLINE void gelu_elements(T* out, const T* inp, std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float x = widened(inp[i]);
    store(out[i], x * gelu_gate(x).value);
  }
}

template <class T>
KERNELS_INLINE void gelu_gradient_elements(T* dinp, const T* dout, const T* inp, std::int64_t begin,
                                           std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float x = widened(inp[i]);
    const Sigmoid gate = gelu_gate(x);
    const float twice_u_slope = kTwiceSqrt2OverPi * (1.0f + 3.0f * kCubic * x * x);
    store(dinp[i], widened(dout[i]) * (gate.value + x * gate.value * gate.complement * twice_u_slope));
  }
}

KERNELS_MULTIVERSION void gelu_range(float* out, const float* inp, std::int64_t begin, std::int64_t end) {
  gelu_elements(out, inp, begin, end);
}
KERNELS_MULTIVERSION void gelu_range(bf16* out, const bf16* inp, std::int64_t begin, std::int64_t end) {
  gelu_elements(out, inp, begin, end);
}
KERNELS_MULTIVERSION void gelu_gradient_range(float* dinp, const float* dout, const float* inp,
                                              std::int64_t begin, std::int64_t end) {
  gelu_gradient_elements(dinp, dout, inp, begin, end);
}
KERNELS_MULTIVERSION void gelu_gradient_range(bf16* dinp, const bf16* dout, const bf16* inp,
                                              std::int64_t begin, std::int64_t end) {
  gelu_gradient_elements(dinp, dout, inp, begin, end);
}

// The normal distribution at x, and x times its density.
struct NormalAt {
  float below, times_density;
};
KERNELS_INLINE NormalAt normal_at(float x) {
  const float t = x < 0.0f ? -x : x;
  const float e = exp_approx(-0.5f * x * x);
  const float tail = e * normal_tail_factor(1.0f / (1.0f + 0.25f * t));
  return {x < 0.0f ? tail : 1.0f - tail, x * e * kInverseSqrtTwoPi};
}

KERNELS_MULTIVERSION void gelu_exact_range(float* out, const float* inp, std::int64_t begin,
                                           std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) out[i] = inp[i] * normal_at(inp[i]).below;
}

KERNELS_MULTIVERSION void gelu_exact_gradient_range(float* dinp, const float* dout, const float* inp,
                                                    std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const NormalAt n = normal_at(inp[i]);
    dinp[i] = dout[i] * (n.below + n.times_density);
  }
}

KERNELS_MULTIVERSION void squared_relu_range(float* out, const float* inp, std::int64_t begin,
                                             std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i)
    out[i] = inp[i] <= 0.0f ? 0.0f : inp[i] * inp[i];  // NaN stays NaN
}

KERNELS_MULTIVERSION void squared_relu_gradient_range(float* dinp, const float* dout, const float* inp,
                                                      std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) dinp[i] = inp[i] <= 0.0f ? 0.0f : 2.0f * inp[i] * dout[i];
}

KERNELS_MULTIVERSION void relu_range(float* out, const float* inp, std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) out[i] = inp[i] <= 0.0f ? 0.0f : inp[i];  // NaN stays NaN
}

KERNELS_MULTIVERSION void relu_gradient_range(float* dinp, const float* dout, const float* inp,
                                              std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) dinp[i] = inp[i] <= 0.0f ? 0.0f : dout[i];
}

// A gate's activation and its slope.
struct Gate {
  float value, slope;
};
struct Silu {
  static KERNELS_INLINE float value(float x) { return x * sigmoid_approx(x).value; }
  static KERNELS_INLINE Gate gradient(float x) {
    const Sigmoid s = sigmoid_approx(x);
    return {x * s.value, s.value * (1.0f + x * s.complement)};
  }
};
struct Gelu {
  static KERNELS_INLINE float value(float x) { return x * gelu_gate(x).value; }
  static KERNELS_INLINE Gate gradient(float x) {
    const Sigmoid s = gelu_gate(x);
    const float twice_u_slope = kTwiceSqrt2OverPi * (1.0f + 3.0f * kCubic * x * x);
    return {x * s.value, s.value + x * s.value * s.complement * twice_u_slope};
  }
};

template <class Activation, class T>
KERNELS_INLINE void gated_row(T* out, const T* gate, const T* up, float weight, std::int64_t F) {
#pragma omp simd
  for (std::int64_t f = 0; f < F; ++f)
    store(out[f], weight * Activation::value(widened(gate[f])) * widened(up[f]));
}

// Returns the gradient of the row's weight.
template <class Activation, class T>
KERNELS_INLINE float gated_gradient_row(T* dgate, T* dup, const T* dout, const T* gate, const T* up,
                                        float weight, std::int64_t F) {
  float dweight = 0;
#pragma omp simd reduction(+ : dweight)
  for (std::int64_t f = 0; f < F; ++f) {
    const Gate g = Activation::gradient(widened(gate[f]));
    const float u = widened(up[f]), gradient = widened(dout[f]), upward = weight * gradient;
    dweight += gradient * g.value * u;
    store(dgate[f], upward * u * g.slope);
    store(dup[f], upward * g.value);
  }
  return dweight;
}

// gpt-oss's gate and what it multiplies, clamped, each with its slope.
constexpr float kClamp = 7.0f, kClampedSlope = 1.702f;

KERNELS_MULTIVERSION void clamped_swiglu_row(float* out, const float* gate, const float* up, float weight,
                                             std::int64_t F) {
#pragma omp simd
  for (std::int64_t f = 0; f < F; ++f) {
    const float g = gate[f] > kClamp ? kClamp : gate[f];
    const float above = up[f] < -kClamp ? -kClamp : up[f];
    const float u = above > kClamp ? kClamp : above;
    out[f] = weight * g * sigmoid_approx(kClampedSlope * g).value * (u + 1.0f);
  }
}
KERNELS_MULTIVERSION float clamped_swiglu_gradient_row(float* dgate, float* dup, const float* dout,
                                                       const float* gate, const float* up, float weight,
                                                       std::int64_t F) {
  float dweight = 0;
#pragma omp simd reduction(+ : dweight)
  for (std::int64_t f = 0; f < F; ++f) {
    const float g = gate[f] > kClamp ? kClamp : gate[f];
    const float above = up[f] < -kClamp ? -kClamp : up[f];
    const float u = above > kClamp ? kClamp : above;
    const Sigmoid s = sigmoid_approx(kClampedSlope * g);
    const float value = g * s.value, upward = weight * dout[f];
    dweight += dout[f] * value * (u + 1.0f);
    dgate[f] =
        gate[f] > kClamp ? 0.0f : upward * (u + 1.0f) * s.value * (1.0f + kClampedSlope * g * s.complement);
    dup[f] = up[f] < -kClamp || up[f] > kClamp ? 0.0f : upward * value;
  }
  return dweight;
}

KERNELS_MULTIVERSION float weighed_gradient_row(float* dinp, const float* dout, const float* inp,
                                                float weight, std::int64_t F) {
  float dweight = 0;
#pragma omp simd reduction(+ : dweight)
  for (std::int64_t f = 0; f < F; ++f) {
    dweight += dout[f] * inp[f];
    dinp[f] = weight * dout[f];
  }
  return dweight;
}

KERNELS_MULTIVERSION void swiglu_row(float* out, const float* gate, const float* up, float weight,
                                     std::int64_t F) {
  gated_row<Silu>(out, gate, up, weight, F);
}
KERNELS_MULTIVERSION void swiglu_row(bf16* out, const bf16* gate, const bf16* up, float weight,
                                     std::int64_t F) {
  gated_row<Silu>(out, gate, up, weight, F);
}
KERNELS_MULTIVERSION void geglu_row(float* out, const float* gate, const float* up, float weight,
                                    std::int64_t F) {
  gated_row<Gelu>(out, gate, up, weight, F);
}
KERNELS_MULTIVERSION void geglu_row(bf16* out, const bf16* gate, const bf16* up, float weight,
                                    std::int64_t F) {
  gated_row<Gelu>(out, gate, up, weight, F);
}
KERNELS_MULTIVERSION float swiglu_gradient_row(float* dgate, float* dup, const float* dout, const float* gate,
                                               const float* up, float weight, std::int64_t F) {
  return gated_gradient_row<Silu>(dgate, dup, dout, gate, up, weight, F);
}
KERNELS_MULTIVERSION float swiglu_gradient_row(bf16* dgate, bf16* dup, const bf16* dout, const bf16* gate,
                                               const bf16* up, float weight, std::int64_t F) {
  return gated_gradient_row<Silu>(dgate, dup, dout, gate, up, weight, F);
}
KERNELS_MULTIVERSION float geglu_gradient_row(float* dgate, float* dup, const float* dout, const float* gate,
                                              const float* up, float weight, std::int64_t F) {
  return gated_gradient_row<Gelu>(dgate, dup, dout, gate, up, weight, F);
}
KERNELS_MULTIVERSION float geglu_gradient_row(bf16* dgate, bf16* dup, const bf16* dout, const bf16* gate,
                                              const bf16* up, float weight, std::int64_t F) {
  return gated_gradient_row<Gelu>(dgate, dup, dout, gate, up, weight, F);
}

// A row's weight, and the factor that turns its gradient into that of the number it was made from.
struct Weight {
  float value, slope;
};
Weight weight_of_row(RowWeights weights, std::int64_t r) {
  if (!weights.values) return {1.0f, 0.0f};
  if (!weights.sigmoid) return {weights.values[r], 1.0f};
  const Sigmoid s = sigmoid_approx(weights.values[r]);
  return {s.value, s.value * s.complement};
}

KERNELS_MULTIVERSION float weighted_squared_relu_gradient_row(float* dinp, const float* dout,
                                                              const float* inp, float weight,
                                                              std::int64_t F) {
  float dweight = 0;
#pragma omp simd reduction(+ : dweight)
  for (std::int64_t f = 0; f < F; ++f) {
    const float x = inp[f] <= 0.0f ? 0.0f : inp[f];
    dweight += dout[f] * x * x;
    dinp[f] = 2.0f * weight * x * dout[f];
  }
  return dweight;
}

// An exponential and a division weigh about as much as this many floats touched.
constexpr std::int64_t kSigmoidCost = 4;

}  // namespace

void gelu_forward(float* out, const float* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, kSigmoidCost,
                  [=](std::int64_t begin, std::int64_t end) { gelu_range(out, inp, begin, end); });
}
void gelu_forward(bf16* out, const bf16* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, kSigmoidCost,
                  [=](std::int64_t begin, std::int64_t end) { gelu_range(out, inp, begin, end); });
}

void gelu_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, kSigmoidCost, [=](std::int64_t begin, std::int64_t end) {
    gelu_gradient_range(dinp, dout, inp, begin, end);
  });
}
void gelu_backward(bf16* dinp, const bf16* dout, const bf16* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, kSigmoidCost, [=](std::int64_t begin, std::int64_t end) {
    gelu_gradient_range(dinp, dout, inp, begin, end);
  });
}

void gelu_exact_forward(float* out, const float* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, kSigmoidCost,
                  [=](std::int64_t begin, std::int64_t end) { gelu_exact_range(out, inp, begin, end); });
}

void gelu_exact_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, kSigmoidCost, [=](std::int64_t begin, std::int64_t end) {
    gelu_exact_gradient_range(dinp, dout, inp, begin, end);
  });
}

void squared_relu_forward(float* out, const float* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, 1,
                  [=](std::int64_t begin, std::int64_t end) { squared_relu_range(out, inp, begin, end); });
}

void squared_relu_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, 1, [=](std::int64_t begin, std::int64_t end) {
    squared_relu_gradient_range(dinp, dout, inp, begin, end);
  });
}

void relu_forward(float* out, const float* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, 1, [=](std::int64_t begin, std::int64_t end) { relu_range(out, inp, begin, end); });
}

void relu_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, 1, [=](std::int64_t begin, std::int64_t end) {
    relu_gradient_range(dinp, dout, inp, begin, end);
  });
}

namespace {

template <class T>
using GatedRow = void (*)(T* out, const T* gate, const T* up, float weight, std::int64_t F);
template <class T>
using GatedGradientRow = float (*)(T* dgate, T* dup, const T* dout, const T* gate, const T* up, float weight,
                                   std::int64_t F);

template <class T>
void gated_forward(GatedRow<T> of_row, T* out, const T* gate_up, std::int64_t R, std::int64_t F,
                   RowWeights weights = {}) {
  parallel_ranges(R, kSigmoidCost * F, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* gate = gate_up + r * 2 * F;
      of_row(out + r * F, gate, gate + F, weight_of_row(weights, r).value, F);
    }
  });
}

template <class T>
void gated_backward(GatedGradientRow<T> of_row, T* dgate_up, const T* dout, const T* gate_up, std::int64_t R,
                    std::int64_t F, RowWeights weights = {}, float* drow_weights = nullptr) {
  parallel_ranges(R, kSigmoidCost * F, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* gate = gate_up + r * 2 * F;
      T* dgate = dgate_up + r * 2 * F;
      const Weight weight = weight_of_row(weights, r);
      const float dweight = of_row(dgate, dgate + F, dout + r * F, gate, gate + F, weight.value, F);
      if (drow_weights) drow_weights[r] = weight.slope * dweight;
    }
  });
}

}  // namespace

void swiglu_forward(float* out, const float* gate_up, std::int64_t R, std::int64_t F, RowWeights weights) {
  gated_forward<float>(swiglu_row, out, gate_up, R, F, weights);
}
void swiglu_forward(bf16* out, const bf16* gate_up, std::int64_t R, std::int64_t F) {
  gated_forward<bf16>(swiglu_row, out, gate_up, R, F);
}

void swiglu_backward(float* dgate_up, const float* dout, const float* gate_up, std::int64_t R, std::int64_t F,
                     RowWeights weights, float* drow_weights) {
  gated_backward<float>(swiglu_gradient_row, dgate_up, dout, gate_up, R, F, weights, drow_weights);
}
void swiglu_backward(bf16* dgate_up, const bf16* dout, const bf16* gate_up, std::int64_t R, std::int64_t F) {
  gated_backward<bf16>(swiglu_gradient_row, dgate_up, dout, gate_up, R, F);
}

void geglu_forward(float* out, const float* gate_up, std::int64_t R, std::int64_t F, RowWeights weights) {
  gated_forward<float>(geglu_row, out, gate_up, R, F, weights);
}
void geglu_forward(bf16* out, const bf16* gate_up, std::int64_t R, std::int64_t F) {
  gated_forward<bf16>(geglu_row, out, gate_up, R, F);
}

void geglu_backward(float* dgate_up, const float* dout, const float* gate_up, std::int64_t R, std::int64_t F,
                    RowWeights weights, float* drow_weights) {
  gated_backward<float>(geglu_gradient_row, dgate_up, dout, gate_up, R, F, weights, drow_weights);
}
void geglu_backward(bf16* dgate_up, const bf16* dout, const bf16* gate_up, std::int64_t R, std::int64_t F) {
  gated_backward<bf16>(geglu_gradient_row, dgate_up, dout, gate_up, R, F);
}

void clamped_swiglu_forward(float* out, const float* gate_up, std::int64_t R, std::int64_t F,
                            RowWeights weights) {
  gated_forward<float>(clamped_swiglu_row, out, gate_up, R, F, weights);
}

void clamped_swiglu_backward(float* dgate_up, const float* dout, const float* gate_up, std::int64_t R,
                             std::int64_t F, RowWeights weights, float* drow_weights) {
  gated_backward<float>(clamped_swiglu_gradient_row, dgate_up, dout, gate_up, R, F, weights, drow_weights);
}

void weigh_rows_backward(float* dinp, float* drow_weights, const float* dout, const float* inp,
                         const float* weights, std::int64_t R, std::int64_t F) {
  parallel_ranges(R, F, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      drow_weights[r] = weighed_gradient_row(dinp + r * F, dout + r * F, inp + r * F, weights[r], F);
  });
}

void weigh_rows(float* out, const float* inp, std::int64_t R, std::int64_t F, RowWeights weights) {
  parallel_ranges(R, F, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float weight = weight_of_row(weights, r).value;
      for (std::int64_t f = 0; f < F; ++f) out[r * F + f] = weight * inp[r * F + f];
    }
  });
}

void weighted_squared_relu_backward(float* dinp, float* drow_weights, const float* dout, const float* inp,
                                    std::int64_t R, std::int64_t F, RowWeights weights) {
  parallel_ranges(R, F, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const Weight weight = weight_of_row(weights, r);
      const float dweight =
          weighted_squared_relu_gradient_row(dinp + r * F, dout + r * F, inp + r * F, weight.value, F);
      if (drow_weights) drow_weights[r] = weight.slope * dweight;
    }
  });
}

}  // namespace kernels::cpu
