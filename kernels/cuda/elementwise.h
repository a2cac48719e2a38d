// Small memory-bound operations on the GPU; shapes as kernels/elementwise.h and kernels/activation.h.
#pragma once
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// out (R, C) = a (R, C) + b (R, C) + bias (C), all of one type; b and bias may be absent; out may be a or b.
void add(const Context& context, Tensor out, ConstTensor a, ConstTensor b, ConstTensor bias, std::int64_t R,
         std::int64_t C);

// out (count) = inp (count), each of its own type.
void convert(const Context& context, Tensor out, ConstTensor inp, std::int64_t count);

// out (B, C) = the last of each sequence's T rows of inp (B, T, C), of one type.
void gather_last(const Context& context, Tensor out, ConstTensor inp, std::int64_t B, std::int64_t T,
                 std::int64_t C);

// GELU, tanh form; (count) elements of one type. dinp may be dout.
void gelu_forward(const Context& context, Tensor out, ConstTensor inp, std::int64_t count);
void gelu_backward(const Context& context, Tensor dinp, ConstTensor dout, ConstTensor inp,
                   std::int64_t count);

// SwiGLU: gate_up (R, 2F) holds a row's F gates, then its F ups; out (R, F) = silu(gate) * up.
void swiglu_forward(const Context& context, Tensor out, ConstTensor gate_up, std::int64_t R, std::int64_t F);
void swiglu_backward(const Context& context, Tensor dgate_up, ConstTensor dout, ConstTensor gate_up,
                     std::int64_t R, std::int64_t F);

}  // namespace kernels::cuda
