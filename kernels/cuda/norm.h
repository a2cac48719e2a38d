// LayerNorm and RMSNorm over the last dimension on the GPU; shapes and meanings as kernels/layernorm.h and
// kernels/rmsnorm.h. Activations and weights are of one type, their gradients of another; statistics are
// fp32.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/cuda/strided_rows.h"

namespace kernels::cuda {

// An addition before a norm: sum (R, C) = inp + other (R, C) + bias (C) is rounded once, written, and
// normalised. sum and out have the bits that add() (elementwise.h) and then the norm would give. Without
// `other` nothing is added; the bias may be absent. sum may be inp or other.
struct AddedToInput {
  ConstTensor other, bias;
  Tensor sum;
};

void layernorm_forward(const Context& context, Tensor out, float* mean, float* rstd, ConstTensor inp,
                       ConstTensor weight, ConstTensor bias, float eps, std::int64_t R, std::int64_t C,
                       const AddedToInput& added = {});
// Rows may be columns of wider ones, where nothing is added.
void rmsnorm_forward(const Context& context, Tensor out, float* rstd, ConstTensor inp, ConstTensor weight,
                     float eps, std::int64_t R, std::int64_t C, RowStrides strides = {},
                     const AddedToInput& added = {});

// dinp, dweight and dbias are added to. Weight gradients are summed over rows in an order that depends on R
// and C alone; their partial sums, 2 C floats for each of at most kNormBlocks blocks, lie in scratch memory.
inline constexpr int kNormBlocks = 1056;
void layernorm_backward(const Context& context, Tensor dinp, Tensor dweight, Tensor dbias, ConstTensor dout,
                        ConstTensor inp, ConstTensor weight, const float* mean, const float* rstd,
                        std::int64_t R, std::int64_t C);
void rmsnorm_backward(const Context& context, Tensor dinp, Tensor dweight, ConstTensor dout, ConstTensor inp,
                      ConstTensor weight, const float* rstd, std::int64_t R, std::int64_t C,
                      RowStrides strides = {});

// dbias (N) += the column sums of dout (M, N): the bias gradient of a linear layer, by the same partial sums.
// scale: what dout's elements are multiplied by, a device scalar (fp8); null: 1.
// Without accumulate, = in the place of +=.
void add_column_sums(const Context& context, Tensor dbias, ConstTensor dout, const float* scale,
                     std::int64_t M, std::int64_t N, bool accumulate = true);

}  // namespace kernels::cuda
