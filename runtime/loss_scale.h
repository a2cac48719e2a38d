// Dynamic loss scaling for training in fp16 (Micikevicius et al. 2018, arXiv 1710.03740). Many gradients are
// below fp16's smallest number, 6e-8, so the loss is multiplied by a factor that is as large as gradients
// allow without overflow. The constants are those of torch.amp.GradScaler.
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
