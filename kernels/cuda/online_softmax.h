// Sums of exponentials whose largest exponent is found on the way.
#pragma once
#include "kernels/cuda/thread.h"

namespace kernels::cuda {

// exp(x - highest) for x <= highest; 0 for x = -inf, also where highest is -inf.
CUDA_DEVICE float exp_below(float x, float highest) {
  return x == -INFINITY ? 0.0f : expf(x - highest);
}

// sum = the exponentials seen so far, relative to the highest exponent seen so far.
struct SoftmaxState {
  float highest = -INFINITY, sum = 0;

  CUDA_DEVICE void raise(float to) {
    if (to <= highest) return;
    sum *= exp_below(highest, to);
    highest = to;
  }
};

}  // namespace kernels::cuda
