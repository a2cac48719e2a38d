// What waits in the host's memory: activations between a layer's forward and backward pass, and states that
// the host updates itself (ZeRO-Offload, Ren et al. 2021, arXiv 2101.06840).
#pragma once
#include <map>
#include <vector>

#include "sim/plan/builder.h"
#include "sim/plan/parameters.h"
#include "sim/plan/step_blocks.h"

namespace sim {

// Where a kept buffer is while it waits, and where backward finds it again.
struct OffloadedBuffer {
  BufferId on_host = kNoBuffer, fetched = kNoBuffer;
};
using OffloadedBuffers = std::map<BufferId, OffloadedBuffer>;

// Adds the copies of what `layer`'s forward blocks write, or find as their input `residual`, and its later
// blocks read; these then read what has been fetched. `known` has the buffers of layers of other kinds.
// `name` begins the blocks' names.
void offload_activations(PlanBuilder& builder, const std::string& name, BufferId residual, LayerBlocks& layer,
                         OffloadedBuffers& known);

// Copies of a unit's gradients to the host and of its updated parameters back.
std::vector<Operation> gradients_to_host(const PlanBuilder& builder, const std::vector<Tensor>& unit);
std::vector<Operation> parameters_from_host(const PlanBuilder& builder, const std::vector<Tensor>& unit);

}  // namespace sim
