// What each optimizer holds beside a parameter, and the operations of its step.
#pragma once
#include <string>
#include <vector>

#include "sim/plan/builder.h"
#include "sim/plan/parameters.h"

namespace sim {

// A state of one tensor: which member of Tensor it is, what its name begins with, and its type and shape.
struct OptimizerState {
  BufferId Tensor::*member;
  const char* prefix;
  DType dtype{};
  Shape shape;
};

// Bytes a parameter besides the fp32 copy of mixed precision (which is not listed here): adamw 8; adamw_8bit
// 2 and two fp32 scales for every 256 (bitsandbytes' block size); adafactor 4 a row and a column of a matrix;
// muon 4 for a layer's matrices, which it makes orthogonal, and adamw's for the rest; sgd and lion 4. `shape`
// is a shard's under ZeRO.
std::vector<OptimizerState> optimizer_states(Optimizer optimizer, const Shape& shape, bool per_layer);

// Updates a unit's tensors by their gradients, clipped as `norm` says. `block` names the block's scratch.
std::vector<Operation> optimizer_operations(PlanBuilder& builder, const std::string& block,
                                            const std::vector<Tensor>& unit, BufferId norm);

}  // namespace sim
