// Flash attention's forward pass with the matrix instructions of sm_90a (H100, H200): beside attention_flash,
// which any GPU from sm_80 on runs and which runs use.
#pragma once
#include "kernels/attention.h"
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// As attention_flash_forward(), for head sizes 64 and 128 in bf16. Only on a GPU of compute capability 9.0.
void attention_hopper_forward(const Context& context, Tensor out, float* lse, ConstTensor qkv,
                              AttentionShape s);

}  // namespace kernels::cuda
