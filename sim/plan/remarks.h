// What a reader should know of a scenario that has a plan.
#pragma once
#include "sim/plan/legality.h"

namespace sim {

// Sequences beyond the positions that a model was trained on. Never throws.
std::vector<Problem> remarks(const Scenario& scenario);

}  // namespace sim
