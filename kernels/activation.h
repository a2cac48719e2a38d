// Feed-forward non-linearities.
#pragma once
#include <cstdint>

namespace kernels::cpu {

// GELU, tanh form (GPT-2's gelu_new): out (R, F) from inp (R, F).
void gelu_forward(float* out, const float* inp, std::int64_t R, std::int64_t F);
// dinp (R, F) = gradient; dinp may be the same memory as dout.
void gelu_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F);

// Squared ReLU (Nemotron): out (R, F) = max(inp, 0)^2.
void squared_relu_forward(float* out, const float* inp, std::int64_t R, std::int64_t F);
// dinp (R, F) = gradient; dinp may be the same memory as dout.
void squared_relu_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F);

// SwiGLU: gate_up (R, 2F) holds a row's F gates, then its F ups; out (R, F) = silu(gate) * up.
void swiglu_forward(float* out, const float* gate_up, std::int64_t R, std::int64_t F);
// dgate_up (R, 2F) = gradient.
void swiglu_backward(float* dgate_up, const float* dout, const float* gate_up, std::int64_t R,
                     std::int64_t F);

}  // namespace kernels::cpu
