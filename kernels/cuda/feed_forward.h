// Feed-forward non-linearities that may multiply their rows by weights, on the GPU; shapes and meanings as
// kernels/activation.h. Tensors are of one type, the rows' weights fp32. Without weights SiLU's gate and GELU
// alone are in elementwise.h.
#pragma once
#include "kernels/activation.h"
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

using kernels::cpu::RowWeights;

// What is applied to the input, or to the gate of gate_up (R, 2F). `none` applies nothing: rows are only
// multiplied by their weights (weigh_rows).
enum class Activation { relu, squared_relu, silu, gelu, gelu_exact, none, clamped_silu };
constexpr bool is_gated(Activation activation) {
  return activation == Activation::silu || activation == Activation::gelu ||
         activation == Activation::clamped_silu;
}

// out (R, F) = activation(inp) (* weight), for one that is not gated.
void activation_forward(const Context& context, Activation activation, Tensor out, ConstTensor inp,
                        std::int64_t R, std::int64_t F, RowWeights weights = {});
// dinp (R, F) = gradient, which may be dout; drow_weights (R) = gradient of weights.values, where there are
// any.
void activation_backward(const Context& context, Activation activation, Tensor dinp, ConstTensor dout,
                         ConstTensor inp, std::int64_t R, std::int64_t F, RowWeights weights = {},
                         float* drow_weights = nullptr);

// out (R, F) = activation(gate) * up (* weight), for one that is gated; with clamped_silu, as
// clamped_swiglu_forward of kernels/activation.h.
void gated_forward(const Context& context, Activation activation, Tensor out, ConstTensor gate_up,
                   std::int64_t R, std::int64_t F, RowWeights weights = {});
void gated_backward(const Context& context, Activation activation, Tensor dgate_up, ConstTensor dout,
                    ConstTensor gate_up, std::int64_t R, std::int64_t F, RowWeights weights = {},
                    float* drow_weights = nullptr);

}  // namespace kernels::cuda
