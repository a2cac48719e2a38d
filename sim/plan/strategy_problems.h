// What of a strategy cannot be, beyond the degrees that validate.cpp looks at. Included by .cpp files only.
#pragma once
#include <vector>

#include "sim/plan/legality.h"
#include "sim/scenario/scenario.h"

namespace sim {

// Requires degrees from 1 on whose product is a number of devices.
std::vector<Problem> strategy_problems(const Scenario& scenario);

}  // namespace sim
