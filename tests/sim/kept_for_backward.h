// What a layer keeps for its backward pass, beside closed forms.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "sim/plan/lives.h"
#include "sim/plan/memory.h"

namespace sim {

// What one decoder layer leaves between its forward and its backward pass for one micro-batch, exact bytes:
// the activations of closed forms such as Korthikanti et al. 2022. Empty for generation.
inline std::vector<LiveBuffer> kept_for_backward(const Plan& plan, std::int32_t layer) {
  const std::vector<Action>& actions = plan.programs.front().actions;
  const auto action_of = [&](Phase phase) {
    return std::find_if(actions.begin(), actions.end(), [&](const Action& a) {
      const Block& block = plan.blocks[static_cast<std::size_t>(a.block)];
      return a.phase == phase && a.layer == layer && a.micro_batch == 0 && block.role == BlockRole::layer;
    });
  };
  const auto forward = action_of(Phase::forward), backward = action_of(Phase::backward);
  std::vector<LiveBuffer> kept;
  if (forward == actions.end() || backward == actions.end()) return kept;
  const auto recompute = action_of(Phase::recompute);
  const BlockUses uses = uses_of_blocks(plan);
  const auto uses_at = [&](const Action& a) {
    std::vector<std::pair<BufferId, std::int32_t>> at;
    for (const BlockUse& u : uses[static_cast<std::size_t>(a.block)])
      at.emplace_back(u.buffer, u.layer_offset);
    return at;
  };
  auto later = uses_at(*backward);
  if (recompute != actions.end())
    for (const auto& u : uses_at(*recompute)) later.push_back(u);
  for (const auto& [buffer, offset] : uses_at(*forward)) {
    const Buffer& b = plan.buffers[static_cast<std::size_t>(buffer)];
    const bool is_kept = b.buffer_class == BufferClass::activation && b.per_layer && offset == 0 &&
                         std::find(later.begin(), later.end(), std::make_pair(buffer, offset)) != later.end();
    if (is_kept) kept.push_back({buffer, b.memory(forward->variables), 1});
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const LiveBuffer& a, const LiveBuffer& b) { return a.bytes > b.bytes; });
  return kept;
}

}  // namespace sim
