// Operations that always follow one another.
#pragma once
#include <vector>

#include "sim/plan/plan.h"

namespace sim {

// For each block and its operation i: whether the same operation precedes operation i + 1 in every block that
// has i + 1 (by id). Only then may the two be fused: otherwise a block that recomputes the second without the
// first would give other bits than the forward pass.
std::vector<std::vector<bool>> always_followed(const Plan& plan);

}  // namespace sim
