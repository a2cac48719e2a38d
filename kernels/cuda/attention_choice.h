// Which kernels a run's attention takes: those of any GPU from sm_80 on (attention_flash), or those of sm_90a
// (hopper/), where the GPU has them.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "kernels/cuda/attention.h"

namespace kernels::cuda {

class AttentionKernels {
 public:
  // When a shape occurs for the first time, both kinds run on its operands. From then on Hopper's are taken
  // for it if their results agree with the others' and they are no slower. If `deterministic`, agreement
  // alone decides, so that every process takes the same kernels.
  AttentionKernels(int compute_capability, bool deterministic)
      : has_warpgroup_products_(compute_capability == 90), deterministic_(deterministic) {}

  // As attention_flash_forward() and attention_flash_backward(). These also run where Hopper's kernels do not
  // take the mask (windows, ALiBi, forward passes with sinks) or the scratch memory is too small for them.
  void forward(const Context& context, Tensor out, float* lse, ConstTensor qkv, AttentionShape s,
               const AttentionMask& mask = {});
  void backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                const float* lse, AttentionShape s, const AttentionMask& mask = {});

  // Among the shapes so far: how many Hopper's kernels are taken for, and for how many they gave another
  // result, which is a defect of theirs.
  struct Counts {
    int shapes = 0, hopper = 0, disagreeing = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  using Key = std::array<std::int64_t, 8>;  // backward, type, the shape, causal
  bool takes_hopper(const Context& context, const Key& key, ConstTensor result, std::int64_t elements,
                    const std::function<void()>& flash, const std::function<void()>& hopper);

  bool has_warpgroup_products_, deterministic_;
  std::map<Key, bool> takes_hopper_;
  Counts counts_;
};

// Whether two results of the same attention differ by no more than 16-bit rounding of sums in another order
// explains: the norm of their difference is at most 2 % of the norm of the first. False where either holds
// infinity or NaN.
bool agree(std::span<const float> a, std::span<const float> b);

}  // namespace kernels::cuda
