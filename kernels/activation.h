// Feed-forward non-linearities.
#pragma once
#include <cstdint>

#include "kernels/cuda/types.h"

namespace kernels::cpu {

// GELU, tanh form (GPT-2's gelu_new): out (R, F) from inp (R, F). In bf16 what is computed is fp32, and
// rounded once.
void gelu_forward(float* out, const float* inp, std::int64_t R, std::int64_t F);
void gelu_forward(cuda::bf16* out, const cuda::bf16* inp, std::int64_t R, std::int64_t F);
// dinp (R, F) = gradient; dinp may be the same memory as dout.
void gelu_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F);
void gelu_backward(cuda::bf16* dinp, const cuda::bf16* dout, const cuda::bf16* inp, std::int64_t R,
                   std::int64_t F);

// GELU by the error function (Falcon, MPT, GPT-NeoX); as above.
void gelu_exact_forward(float* out, const float* inp, std::int64_t R, std::int64_t F);
void gelu_exact_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F);

// ReLU: out (R, F) = max(inp, 0).
void relu_forward(float* out, const float* inp, std::int64_t R, std::int64_t F);
// dinp (R, F) = gradient; dinp may be the same memory as dout.
void relu_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F);

// Squared ReLU (Nemotron): out (R, F) = max(inp, 0)^2.
void squared_relu_forward(float* out, const float* inp, std::int64_t R, std::int64_t F);
// dinp (R, F) = gradient; dinp may be the same memory as dout.
void squared_relu_backward(float* dinp, const float* dout, const float* inp, std::int64_t R, std::int64_t F);

// What multiplies the rows of a gated activation: the weights of experts' rows, or, of a shared expert, gates
// that pass a sigmoid first. Null: nothing.
struct RowWeights {
  const float* values = nullptr;  // (R)
  bool sigmoid = false;
};

// SwiGLU: gate_up (R, 2F) holds a row's F gates, then its F ups; out (R, F) = silu(gate) * up (* weight). In
// bf16 as GELU is.
void swiglu_forward(float* out, const float* gate_up, std::int64_t R, std::int64_t F,
                    RowWeights weights = {});
void swiglu_forward(cuda::bf16* out, const cuda::bf16* gate_up, std::int64_t R, std::int64_t F);
// dgate_up (R, 2F) = gradient; drow_weights (R) = gradient of weights.values, where there are any.
void swiglu_backward(float* dgate_up, const float* dout, const float* gate_up, std::int64_t R, std::int64_t F,
                     RowWeights weights = {}, float* drow_weights = nullptr);
void swiglu_backward(cuda::bf16* dgate_up, const cuda::bf16* dout, const cuda::bf16* gate_up, std::int64_t R,
                     std::int64_t F);

// GeGLU (Shazeer 2020, arXiv 2002.05202), with GELU's tanh form (Gemma): gelu(gate) * up (* weight); as
// above.
void geglu_forward(float* out, const float* gate_up, std::int64_t R, std::int64_t F, RowWeights weights = {});
void geglu_forward(cuda::bf16* out, const cuda::bf16* gate_up, std::int64_t R, std::int64_t F);
void geglu_backward(float* dgate_up, const float* dout, const float* gate_up, std::int64_t R, std::int64_t F,
                    RowWeights weights = {}, float* drow_weights = nullptr);
void geglu_backward(cuda::bf16* dgate_up, const cuda::bf16* dout, const cuda::bf16* gate_up, std::int64_t R,
                    std::int64_t F);

// gpt-oss's (openai/gpt-oss, gpt_oss/torch/model.py): gate * sigmoid(1.702 gate) * (up + 1) (* weight), with
// the gate at most 7 and up between -7 and 7; beyond these bounds they have no gradient. As above.
void clamped_swiglu_forward(float* out, const float* gate_up, std::int64_t R, std::int64_t F,
                            RowWeights weights = {});
void clamped_swiglu_backward(float* dgate_up, const float* dout, const float* gate_up, std::int64_t R,
                             std::int64_t F, RowWeights weights = {}, float* drow_weights = nullptr);

// dinp (R, F) = dout * weight, drow_weights (R) = the gradient of the row's weight: sum of dout * inp.
void weigh_rows_backward(float* dinp, float* drow_weights, const float* dout, const float* inp,
                         const float* weights, std::int64_t R, std::int64_t F);
// Rows times their weights, for activations without a gate: out (R, F) = inp * weight; out may be inp.
void weigh_rows(float* out, const float* inp, std::int64_t R, std::int64_t F, RowWeights weights);
// For out = activation(inp) * weight, by the squared ReLU: dinp (R, F), drow_weights (R) = gradients.
void weighted_squared_relu_backward(float* dinp, float* drow_weights, const float* dout, const float* inp,
                                    std::int64_t R, std::int64_t F, RowWeights weights);

}  // namespace kernels::cpu
