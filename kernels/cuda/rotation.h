// A pair of a head's elements that rotate together (kernels/rope.h).
#pragma once
#include <cmath>

#include "kernels/cuda/thread.h"

namespace kernels::cuda {

// Products and sums are fused by hand, so that every kernel that rotates gives the same bits: left to itself,
// the compiler decides anew in each.
CUDA_DEVICE float rotated_first(float x, float y, float cosine, float sine) {
  return fmaf(x, cosine, -(y * sine));
}
CUDA_DEVICE float rotated_second(float x, float y, float cosine, float sine) {
  return fmaf(y, cosine, x * sine);
}

}  // namespace kernels::cuda
