// What is wrong with a strategy, beyond the degrees that validate.cpp checks. Included by .cpp files only.
#pragma once
#include <vector>

#include "sim/plan/legality.h"
#include "sim/scenario/scenario.h"

namespace sim {

// Requires degrees of at least 1 whose product is a number of devices.
std::vector<Problem> strategy_problems(const Scenario& scenario);

}  // namespace sim
