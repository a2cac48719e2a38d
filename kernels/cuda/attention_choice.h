// Which kernels a run's attention takes: those of any GPU from sm_80 on (attention_flash), or those of sm_90a
// (hopper/). Runs take the former until both have been measured on the GPU at hand, with their results
// checked; choose_attention() is where a calibration changes that.
#pragma once
#include "kernels/cuda/attention.h"

namespace kernels::cuda {

// Seconds of the same attention by either; 0 where it has not been measured, or gave a wrong result.
struct AttentionTimes {
  double flash = 0, hopper = 0;
};

struct AttentionChoice {
  bool hopper_forward = false, hopper_backward = false;
};

AttentionChoice choose_attention(const AttentionTimes& forward, const AttentionTimes& backward);

// As attention_flash_forward() and attention_flash_backward(), which also do what the chosen kernels do not
// take, or have no scratch memory for.
void attention_forward(const Context& context, const AttentionChoice& choice, Tensor out, float* lse,
                       ConstTensor qkv, AttentionShape s, const AttentionMask& mask = {});
void attention_backward(const Context& context, const AttentionChoice& choice, Tensor dqkv, ConstTensor dout,
                        ConstTensor qkv, ConstTensor out, const float* lse, AttentionShape s,
                        const AttentionMask& mask = {});

}  // namespace kernels::cuda
