#include "sim/planner/estimate.h"

#include <algorithm>
#include <stdexcept>

#include "sim/plan/device_memory.h"
#include "sim/plan/legality.h"
#include "sim/planner/step_estimator.h"

namespace sim {

struct Estimator::Memo {
  Scenario scenario;
  StepEstimator steps;
};

Estimator::Estimator(const Scenario& base, const Calibration* calibration)
    : memo_(new Memo{base, StepEstimator(base, calibration)}) {}
Estimator::~Estimator() = default;
Estimator::Estimator(Estimator&&) noexcept = default;
Estimator& Estimator::operator=(Estimator&&) noexcept = default;

Estimate Estimator::estimate(const Strategy& strategy, const Workload& workload) {
  Scenario& s = memo_->scenario;
  s.strategy = strategy;
  s.workload = workload;
  StepEstimator& steps = memo_->steps;
  if (steps.must_run(strategy)) return steps.by_running(s);
  StepPasses passes = steps.passes(s);
  StepPipeline pipeline(s, passes, steps.schedule(s));
  const StepStates& states = steps.states(s);
  const bool planned = s.implementation.memory.allocator == AllocatorKind::planned;
  return {pipeline.time(s, states), planned ? pipeline.memory(s, states) : reserved_memory(make_plan(s))};
}

Bytes reserved_memory(const Plan& plan) {
  Bytes most;
  plan_memory_of_all(plan, Addresses::none, [&](const MemoryPlan& memory) {
    most = std::max(most, device_memory(plan, memory).total());
  });
  return most;
}

Estimate estimate(const Scenario& scenario, const Calibration* calibration) {
  const std::vector<Problem> problems = validate(scenario);
  if (!problems.empty()) throw std::invalid_argument(problems[0].field + ": " + problems[0].message);
  if (scenario.workload.task != Task::train)
    throw std::invalid_argument("workload.task: must be train: estimates are of training steps");
  return Estimator(scenario, calibration).estimate(scenario.strategy, scenario.workload);
}

}  // namespace sim
