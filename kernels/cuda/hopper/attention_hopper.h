// Flash attention for sm_90a (H100, H200): whole warpgroups multiply (wgmma) while the copy
// engine (TMA) loads the next tiles for them. attention_flash is the version for any GPU from
// sm_80 on.
#pragma once
#include "kernels/cuda/attention.h"
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// Whether these kernels take it: bf16 or fp16, head sizes 64 and 128, sequences of one length. Only on a GPU
// of compute capability 9.0.
bool hopper_takes(Type type, AttentionShape s, const AttentionMask& mask);

// As attention_flash_forward(). qkv begins at a multiple of 16 bytes. Throws CudaError unless hopper_takes().
void attention_hopper_forward(const Context& context, Tensor out, float* lse, ConstTensor qkv,
                              AttentionShape s, const AttentionMask& mask = {});

// As attention_flash_backward(). Needs attention_hopper_backward_scratch(s) bytes of scratch memory, which
// begin with the same row products of dout and out. Throws CudaError unless hopper_takes().
void attention_hopper_backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv,
                               ConstTensor out, const float* lse, AttentionShape s,
                               const AttentionMask& mask = {});
std::int64_t attention_hopper_backward_scratch(AttentionShape s);

}  // namespace kernels::cuda
