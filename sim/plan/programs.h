// A plan for each task.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/plan/schedule.h"
#include "sim/plan/step_blocks.h"

namespace sim {

// A training step's blocks and buffers, without programs: what strategies that run the same blocks share.
struct StepPlan {
  Plan plan;
  StepBlocks blocks;
};
StepPlan make_step_plan(const Scenario& scenario);
// The same with the backward passes of schedules that split like `parts`; some_split: whole and in two parts.
StepPlan make_step_plan(const Scenario& scenario, BackwardParts parts);
// Without the blocks of passes: parameters and their states, and what is done for them.
StepPlan make_state_plan(const Scenario& scenario);
// Only what a pipeline's stages send to each other.
StepPlan make_transfer_plan(const Scenario& scenario);
// The block that reduces the gradients of so many layers in one message; it is added where there is none yet.
// -1 where layers' gradients are not reduced.
BlockId bucket_block(StepPlan& step, Unit unit, std::int32_t layers);

// A generation's blocks and buffers, without its program.
struct GenerationPlan {
  Plan plan;
  BlockId embedding = -1, head = -1;
  std::vector<BlockId> prefill, decode;  // of each layer
  // Between pipeline stages: the residual stream to the next one, new tokens from the last to all others.
  BlockId send_activation = -1, receive_activation = -1, send_tokens = -1, receive_tokens = -1;
};
GenerationPlan make_generation_blocks(const Scenario& scenario);
// Programs without actions, one for each pipeline stage.
std::vector<Program> generation_programs(const Scenario& scenario);
// Appends to each stage's program the section that makes a token, from 0 on; the first is the prefill.
void append_token(const GenerationPlan& generation, std::int64_t token, std::vector<Program>& programs);

// The program of one pipeline stage: its slots of the schedule as actions, then the optimizer.
Program stage_program(const Scenario& scenario, const StepBlocks& blocks, const Schedule& schedule,
                      std::int32_t stage);

Plan make_training_plan(const Scenario& scenario);
Plan make_generation_plan(const Scenario& scenario);

// Throws std::invalid_argument with the first problem that validate() finds.
void require_valid(const Scenario& scenario);

}  // namespace sim
