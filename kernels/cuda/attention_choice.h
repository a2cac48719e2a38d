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
  // The first time that a shape occurs, both run on its operands. Hopper's are taken for it from then on
  // where they give what the others give, and are no slower; if `deterministic`, wherever they give the same,
  // so that every process takes the same kernels.
  AttentionKernels(int compute_capability, bool deterministic)
      : has_warpgroup_products_(compute_capability == 90), deterministic_(deterministic) {}

  // As attention_flash_forward() and attention_flash_backward(), which also do what Hopper's kernels do not
  // take (windows, ALiBi, forward passes with sinks), or have too little scratch memory for.
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
// makes them: the length of their difference, over that of the first, at most 2 %. Not so where either holds
// a number that is none.
bool agree(std::span<const float> a, std::span<const float> b);

}  // namespace kernels::cuda
