// Dropout (Srivastava et al. 2014) with masks that are a function of seed, step, stream and element, as on
// GPUs: what is recomputed is dropped again, and runs repeat bit by bit on any number of threads.
#pragma once
#include <cstdint>

namespace kernels {

struct DropoutDraw {
  float probability = 0;  // of an element to be dropped, below 1
  std::uint32_t step = 0;
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // tells one tensor from another
};

namespace cpu {

// out (R, C) = (inp (R, C) + bias (C)) / (1 - probability) where an element is kept, 0 where not; mask (R, C)
// is 1 where it is kept. bias may be null; out may be inp.
void dropout_forward(float* out, std::int8_t* mask, const float* inp, const float* bias,
                     const DropoutDraw& draw, std::int64_t R, std::int64_t C);

// dinp (count) = dout / (1 - probability) where the mask is 1, else 0; dinp may be dout.
void dropout_backward(float* dinp, const float* dout, const std::int8_t* mask, float probability,
                      std::int64_t count);

}  // namespace cpu
}  // namespace kernels
