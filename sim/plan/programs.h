// A plan for each task.
#pragma once
#include "sim/plan/plan.h"
#include "sim/plan/step_blocks.h"

namespace sim {

// A training step's blocks and buffers, without programs: what strategies that run the same blocks share.
struct StepPlan {
  Plan plan;
  StepBlocks blocks;
};
StepPlan make_step_plan(const Scenario& scenario);

Plan make_training_plan(const Scenario& scenario);
Plan make_generation_plan(const Scenario& scenario);

}  // namespace sim
