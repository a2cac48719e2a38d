// Flash attention with what sm_90a (H100, H200) has: products of whole warpgroups (wgmma), tiles brought by
// the copy engine (TMA) while other threads multiply. Beside attention_flash, which any GPU from sm_80 on
// runs.
#pragma once
#include "kernels/cuda/attention.h"
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// Whether these kernels take it: bf16 or fp16, head sizes 64 and 128, sequences of one length. Only on a GPU
// of compute capability 9.0.
bool hopper_takes(Type type, AttentionShape s, const AttentionMask& mask);

// As attention_flash_forward(). qkv begins at a multiple of 16 bytes.
void attention_hopper_forward(const Context& context, Tensor out, float* lse, ConstTensor qkv,
                              AttentionShape s, const AttentionMask& mask = {});

// As attention_flash_backward(); scratch of attention_hopper_backward_scratch() bytes, which begins as its.
void attention_hopper_backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv,
                               ConstTensor out, const float* lse, AttentionShape s,
                               const AttentionMask& mask = {});
std::int64_t attention_hopper_backward_scratch(AttentionShape s);

}  // namespace kernels::cuda
