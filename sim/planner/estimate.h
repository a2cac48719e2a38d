// Time and memory of a training step: what predict() finds by running a plan, composed of prices of blocks
// and lives of buffers that are found once for many strategies. A test holds both within 0.5 % of predict()
// for random scenarios of all fields (tests/sim/planner_estimate_test.cpp; tests/bench/planner_bench
// --accuracy for more of them).
#pragma once
#include <memory>

#include "sim/cost/calibration.h"
#include "sim/plan/plan.h"
#include "sim/scenario/scenario.h"
#include "sim/units.h"

namespace sim {

struct Estimate {
  Seconds step;  // as predict(): until the last rank has ended
  // The fullest device's, as peak_memory() of predict()'s report. Where a caching allocator hands memory out
  // its requests are replayed, which takes milliseconds.
  Bytes memory;
};

// Estimates scenarios of one model, hardware and implementation; what they have in common is kept from one to
// the next. Not for several threads at a time: each has its own. The same scenario gives the same estimate
// whatever was asked before.
class Estimator {
 public:
  // Refers to `calibration`, which may be null.
  Estimator(const Scenario& base, const Calibration* calibration);
  ~Estimator();
  Estimator(Estimator&&) noexcept;
  Estimator& operator=(Estimator&&) noexcept;

  // Estimates the base's model, hardware and implementation with this strategy and workload. Requires that
  // validate() finds no problem in the whole; task must be train.
  Estimate estimate(const Strategy& strategy, const Workload& workload);

 private:
  struct Memo;
  std::unique_ptr<Memo> memo_;
};

// Memory of a training step where a caching allocator hands it out: what it reserves beyond the live follows
// from the order of requests, and no closed form knows that order. The fullest stage's, as peak_memory() of
// predict()'s report: every stage's requests are replayed, of all micro-batches. None can be left out: where
// backward passes come in two parts free segments drift from micro-batch to micro-batch, and the stage with
// most that is live is often not that with most reserved. Takes about 20 us a stage and micro-batch where the
// live peak takes 100 ns: for single scenarios and for those that a search keeps, not for all that it looks
// at.
Bytes reserved_memory(const Plan& plan);

// One scenario alone. Throws std::invalid_argument where validate() has problems, or the scenario generates.
Estimate estimate(const Scenario& scenario, const Calibration* calibration = nullptr);

}  // namespace sim
