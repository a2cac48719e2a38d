// Products of experts on the GPU; shapes and meanings as kernels/grouped_matmul.h. Only the device knows
// where the rows of a group begin, so that nothing waits for the host. inp, dout and weight are of one type,
// and their products are summed in fp32; dweight and dbias are of another type.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/grouped_matmul.h"

namespace kernels::cuda {

// R rows of `groups` groups; group g has the rows offsets[g] .. offsets[g + 1] - 1, a device array of groups
// + 1.
struct GroupedRows {
  std::int64_t R, groups;
  const std::int32_t* offsets;
};
using kernels::cpu::GroupedShape;

// out (R, N) = inp (R, K) * weight of the group (groups, N, K)^T + bias (groups, N), which may be absent.
void grouped_matmul_forward(const Context& context, Tensor out, ConstTensor inp, ConstTensor weight,
                            ConstTensor bias, GroupedRows rows, GroupedShape s);

// dinp (R, K) = dout (R, N) * weight of the group.
void grouped_matmul_backward_input(const Context& context, Tensor dinp, ConstTensor dout, ConstTensor weight,
                                   GroupedRows rows, GroupedShape s);

// dweight (groups, N, K) += dout^T * inp over each group's rows; dbias (groups, N) +=, may be absent.
void grouped_matmul_backward_weight(const Context& context, Tensor dweight, Tensor dbias, ConstTensor dout,
                                    ConstTensor inp, GroupedRows rows, GroupedShape s);

}  // namespace kernels::cuda
