#include "kernels/activation.h"

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

KERNELS_MULTIVERSION void gelu_range(float* out, const float* inp, std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) out[i] = inp[i] * gelu_gate(inp[i]).value;
}

KERNELS_MULTIVERSION void gelu_gradient_range(float* dinp, const float* dout, const float* inp,
                                              std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float x = inp[i];
    const Sigmoid gate = gelu_gate(x);
    const float twice_u_slope = kTwiceSqrt2OverPi * (1.0f + 3.0f * kCubic * x * x);
    dinp[i] = dout[i] * (gate.value + x * gate.value * gate.complement * twice_u_slope);
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

KERNELS_MULTIVERSION void swiglu_row(float* out, const float* gate, const float* up, std::int64_t F) {
#pragma omp simd
  for (std::int64_t f = 0; f < F; ++f) out[f] = gate[f] * sigmoid_approx(gate[f]).value * up[f];
}

KERNELS_MULTIVERSION void swiglu_gradient_row(float* dgate, float* dup, const float* dout, const float* gate,
                                              const float* up, std::int64_t F) {
#pragma omp simd
  for (std::int64_t f = 0; f < F; ++f) {
    const float x = gate[f];
    const Sigmoid s = sigmoid_approx(x);
    const float upward = dout[f];
    dgate[f] = upward * up[f] * s.value * (1.0f + x * s.complement);
    dup[f] = upward * x * s.value;
  }
}

// An exponential and a division weigh about as much as this many floats touched.
constexpr std::int64_t kSigmoidCost = 4;

}  // namespace

void gelu_forward(float* out, const float* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, kSigmoidCost,
                  [=](std::int64_t begin, std::int64_t end) { gelu_range(out, inp, begin, end); });
}

void gelu_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F) {
  parallel_ranges(R * F, kSigmoidCost, [=](std::int64_t begin, std::int64_t end) {
    gelu_gradient_range(dinp, dout, inp, begin, end);
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

void swiglu_forward(float* out, const float* gate_up, std::int64_t R, std::int64_t F) {
  parallel_ranges(R, kSigmoidCost * F, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* gate = gate_up + r * 2 * F;
      swiglu_row(out + r * F, gate, gate + F, F);
    }
  });
}

void swiglu_backward(float* dgate_up, const float* dout, const float* gate_up, std::int64_t R,
                     std::int64_t F) {
  parallel_ranges(R, kSigmoidCost * F, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* gate = gate_up + r * 2 * F;
      float* dgate = dgate_up + r * 2 * F;
      swiglu_gradient_row(dgate, dgate + F, dout + r * F, gate, gate + F, F);
    }
  });
}

}  // namespace kernels::cpu
