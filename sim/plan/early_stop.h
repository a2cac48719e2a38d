// Recompute that ends with the last result that the backward pass reads.
#pragma once
#include <vector>

#include "sim/plan/builder.h"

namespace sim {

// `operations` of a layer that is computed again, without those at its end that leave nothing for later
// actions: the last projection and what follows it. PyTorch's checkpoint without re-entrance does so from
// 2.1 on (torch.utils.checkpoint.set_checkpoint_early_stop).
std::vector<Operation> without_unread_end(const PlanBuilder& builder, std::vector<Operation> operations);

}  // namespace sim
