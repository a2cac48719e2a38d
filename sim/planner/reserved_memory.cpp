#include "sim/planner/reserved_memory.h"

#include <algorithm>
#include <utility>

#include "sim/plan/device_memory.h"
#include "sim/plan/programs.h"
#include "sim/plan/schedule.h"
#include "sim/plan/stage_program.h"
#include "sim/planner/pipeline_time.h"

namespace sim {

Bytes reserved_memory(const Scenario& scenario, const std::vector<std::int32_t>& stages) {
  auto [plan, blocks] = make_step_plan(scenario);
  const Strategy& s = scenario.strategy;
  const auto micro_batches = static_cast<std::int32_t>(scenario.workload.global_batch_size / s.data_parallel /
                                                       scenario.workload.micro_batch_size);
  // More micro-batches than a schedule's repeat requests in the memory of those before.
  const Schedule schedule =
      make_schedule(s.schedule, s.pipeline_parallel, s.virtual_pipeline,
                    enough_micro_batches(s.schedule, s.pipeline_parallel, micro_batches));
  for (const std::int32_t stage : stages)
    plan.programs.push_back(stage_program(scenario, blocks, schedule, stage));
  Bytes most;
  plan_memory_of_all(plan, Addresses::none, [&](const MemoryPlan& memory) {
    most = std::max(most, device_memory(plan, memory).total());
  });
  return most;
}

}  // namespace sim
