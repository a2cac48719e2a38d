// A plan for each task.
#pragma once
#include "sim/plan/plan.h"

namespace sim {

Plan make_training_plan(const Scenario& scenario);
Plan make_generation_plan(const Scenario& scenario);

}  // namespace sim
