// State-space layers on the GPU: the short convolution, the scan and the gated norm; shapes and meanings as
// kernels/causal_conv.h, selective_scan.h and gated_norm.h. Activations and parameters are of one type,
// parameters' gradients of another, states and statistics fp32.
#pragma once
#include "kernels/causal_conv.h"
#include "kernels/cuda/launch.h"
#include "kernels/gated_norm.h"
#include "kernels/selective_scan.h"

namespace kernels::cuda {

// Rows of `stride` elements of which an operation reads or writes some columns.
struct ConstColumns {
  ConstTensor first;
  std::int64_t stride;
};
struct WritableColumns {
  Tensor first;
  std::int64_t stride;
};

void causal_conv_forward(const Context& context, Tensor out, Tensor history, ConstColumns inp,
                         ConstTensor weight, ConstTensor bias, const std::int32_t* first_positions,
                         CausalConvShape s);
// dweight and dbias are summed in an order that depends on the shape alone.
void causal_conv_backward(const Context& context, WritableColumns dinp, Tensor dweight, Tensor dbias,
                          ConstTensor dout, ConstColumns inp, ConstTensor weight, ConstTensor bias,
                          CausalConvShape s);

void gated_norm_forward(const Context& context, Tensor out, float* rstd, ConstTensor inp, ConstColumns gate,
                        ConstTensor weight, float eps, GatedNormShape s);
void gated_norm_backward(const Context& context, Tensor dinp, WritableColumns dgate, Tensor dweight,
                         ConstTensor dout, ConstTensor inp, ConstColumns gate, ConstTensor weight,
                         const float* rstd, GatedNormShape s);

// Whether a block's threads can hold a head's state, and its shared memory the sums of a chunk.
bool scan_takes(SelectiveScanShape s);

// heads (3 H): the time steps' biases, the decays' logarithms, the skips; dt: the columns of the time steps.
// Requires scan_takes().
void selective_scan_forward(const Context& context, Tensor out, float* state, ConstTensor xbc,
                            ConstColumns dt, ConstTensor heads, const std::int32_t* first_positions,
                            SelectiveScanShape s);
// dxbc and ddt are written, dheads (3 H) is added to. states: (B, chunks, H, N, P) floats, overwritten.
// Scratch: two doubles and a float per head and token, three floats per head and sequence.
void selective_scan_backward(const Context& context, Tensor dxbc, WritableColumns ddt, Tensor dheads,
                             float* states, ConstTensor dout, ConstTensor xbc, ConstColumns dt,
                             ConstTensor heads, SelectiveScanShape s);

}  // namespace kernels::cuda
