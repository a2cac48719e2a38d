// Dynamic loss scaling of training in fp16 (Micikevicius et al. 2018, arXiv 1710.03740), whose smallest
// numbers, 6e-8, are larger than many gradients: the loss is multiplied by as much as gradients stand.
// Numbers as torch.amp.GradScaler has them.
#pragma once
#include <cstdint>

namespace runtime {

struct LossScale {
  float scale = 65536;
  std::int64_t steps_since_change = 0;  // without overflow
  std::int64_t skipped = 0;             // steps whose update was left out; the optimizer does not count them

  // After a step. One whose gradients overflowed was skipped, and the next has half the scale; after 2000
  // without overflow the scale is doubled.
  void update(bool overflowed) {
    constexpr std::int64_t kGrowthInterval = 2000;
    ++steps_since_change;
    if (overflowed) {
      scale /= 2;
      ++skipped;
    } else if (steps_since_change == kGrowthInterval) {
      scale *= 2;
    } else {
      return;
    }
    steps_since_change = 0;
  }

  bool operator==(const LossScale&) const = default;
};

}  // namespace runtime
