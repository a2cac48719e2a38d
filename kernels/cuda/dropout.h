// Dropout (Srivastava et al. 2014) with masks that are a function of seed, step, stream and element: so what
// is recomputed in the backward pass is dropped again, and two runs are bit-equal.
#pragma once
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// Lies in device memory, so that captured work can be replayed.
struct DropoutStep {
  float probability = 0;  // of an element to be dropped, below 1
  std::uint32_t step = 0;
  std::uint64_t seed = 0;
};

// out (R, C) = (inp (R, C) + bias (C)) / (1 - probability) where an element is kept, 0 where not; mask (R, C)
// is 1 where it is kept. bias and mask may be absent; out may be inp. `stream` tells one tensor from another.
void dropout_forward(const Context& context, Tensor out, std::int8_t* mask, ConstTensor inp, ConstTensor bias,
                     const DropoutStep* step, std::uint64_t stream, std::int64_t R, std::int64_t C);

// dinp (count) = dout / (1 - probability) where the element was kept; by its mask, or, where that is null, by
// drawing again what forward drew under the same step and stream. dinp may be dout.
void dropout_backward(const Context& context, Tensor dinp, ConstTensor dout, const std::int8_t* mask,
                      const DropoutStep* step, std::uint64_t stream, std::int64_t count);

}  // namespace kernels::cuda
