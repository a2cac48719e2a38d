// The estimate in the steps that a search takes: what candidates have in common is found once for all of
// them.
//
// - passes: tensor, context and expert parallelism, recompute and micro-batch decide what a pass takes and
//   keeps;
// - pipeline: stages, schedule and chunks string passes together;
// - states: ZeRO, its groups, buckets and the host decide where parameters and their states lie, and what is
//   exchanged beside the passes.
#pragma once
#include <memory>

#include "sim/planner/estimate.h"
#include "sim/planner/step_pipeline.h"

namespace sim {

// Keeps what strategies of one scenario have in common.
class StepEstimator {
 public:
  // Estimators with the same `schedules` share what they find about schedules.
  StepEstimator(const Scenario& base, const Calibration* calibration,
                std::shared_ptr<Schedules> schedules = std::make_shared<Schedules>());

  // What passes and states refer to is kept until a scenario's workload differs in more than its batches.
  StepPasses passes(const Scenario& scenario);
  const StepStates& states(const Scenario& scenario);
  const ScheduleFacts& schedule(const Scenario& scenario);
  // Whether a strategy's plan must be run to estimate it: samples of kernels that were timed here depend on
  // all that a plan touches, and copies of activations on all that goes on beside them.
  bool must_run(const Strategy& strategy) const;
  Estimate by_running(const Scenario& scenario) const;
  // Forgets what only strategies of one layout share.
  void forget_layout();

 private:
  struct ComputeKey;
  struct StateKey;
  struct Known;
  void forget_other_workloads(const Scenario& scenario);
  BlockTimes& compute_blocks(const Scenario& scenario);
  TransferTimes transfers(const Scenario& scenario);
  UnbucketedStates& unbucketed(const Scenario& scenario, StatePlaces places);

  std::shared_ptr<Known> known_;
};

}  // namespace sim
