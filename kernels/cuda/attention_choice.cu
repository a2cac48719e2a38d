#include "kernels/cuda/attention_choice.h"
#include "kernels/cuda/hopper/attention_hopper.h"

namespace kernels::cuda {
namespace {

bool hopper_is_faster(const AttentionTimes& times) {
  return times.hopper > 0 && times.hopper < times.flash;
}

}  // namespace

AttentionChoice choose_attention(const AttentionTimes& forward, const AttentionTimes& backward) {
  return {hopper_is_faster(forward), hopper_is_faster(backward)};
}

void attention_forward(const Context& context, const AttentionChoice& choice, Tensor out, float* lse,
                       ConstTensor qkv, AttentionShape s, const AttentionMask& mask) {
  const bool hopper = choice.hopper_forward && hopper_takes(qkv.type, s, mask);
  (hopper ? attention_hopper_forward : attention_flash_forward)(context, out, lse, qkv, s, mask);
}

void attention_backward(const Context& context, const AttentionChoice& choice, Tensor dqkv, ConstTensor dout,
                        ConstTensor qkv, ConstTensor out, const float* lse, AttentionShape s,
                        const AttentionMask& mask) {
  const bool hopper = choice.hopper_backward && hopper_takes(qkv.type, s, mask) &&
                      attention_hopper_backward_scratch(s) <= context.scratch_bytes;
  (hopper ? attention_hopper_backward : attention_flash_backward)(context, dqkv, dout, qkv, out, lse, s,
                                                                  mask);
}

}  // namespace kernels::cuda
