// The program of one pipeline stage: its slots of the schedule as actions, then the optimizer.
#pragma once
#include "sim/plan/schedule.h"
#include "sim/plan/step_blocks.h"

namespace sim {

Program stage_program(const Scenario& scenario, const StepBlocks& blocks, const Schedule& schedule,
                      std::int32_t stage);

}  // namespace sim
