// Recompute as PyTorch's checkpoint does it: up to the last result that the backward pass reads, and, where a
// policy says so, without operations whose results are kept.
#pragma once
#include <vector>

#include "sim/plan/decoder.h"

namespace sim {

// `operations` of a layer that is computed again, without those at its end that leave nothing for later
// actions: the last projection and what follows it. PyTorch's checkpoint without re-entrance does so from
// 2.1 on (torch.utils.checkpoint.set_checkpoint_early_stop).
std::vector<Operation> without_unread_end(const PlanBuilder& builder, std::vector<Operation> operations);

// Results of the first forward pass of a layer that keeps its attention core's alone: the others are scratch
// of `block`.
LayerResults dropped_but_attention(PlanBuilder& builder, const std::string& block,
                                   const LayerResults& kept_results, LayerKind kind);
std::vector<Operation> without_attention_core(std::vector<Operation> operations);

}  // namespace sim
