// Operations that always stand behind each other.
#pragma once
#include <vector>

#include "sim/plan/plan.h"

namespace sim {

// For each block, whether operation i is what precedes operation i + 1 in every block that has an operation
// of that one's id. Only then may the two be fused: recomputed without the first, the second would otherwise
// give other bits than in the forward pass.
std::vector<std::vector<bool>> always_followed(const Plan& plan);

}  // namespace sim
