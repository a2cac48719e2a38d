// plan + hardware (+ calibration) -> report. Each block is priced once per distinct set of variables; then
// the programs run.
#pragma once
#include "sim/cost/calibration.h"
#include "sim/plan/plan.h"
#include "sim/report/report.h"

namespace sim {

struct PricedPlan;

// A report of one training step or a whole generation. calibration may be null. Rows are of the first rank
// of each pipeline stage, since all its ranks do the same. Communication that hides behind compute has a
// duration but adds nothing to the step. A receive's duration is the time its stage waits. The step's band is
// the step with all operations at either end of their bands: errors of kernels on one machine go together. A
// generation by an inference engine has the times and rows of the engine's passes (cost/static_batch.h).
Report predict(const Plan& plan, const Hardware& hardware, const Calibration* calibration = nullptr);
// The same, from what price_plan() (cost/priced_plan.h) gave for this plan, hardware and calibration.
Report predict(const Plan& plan, const Hardware& hardware, const Calibration* calibration,
               const PricedPlan& priced);

// The step alone, without rows and memory.
struct StepTime {
  Seconds seconds, low, high;  // 90 % band
};
StepTime predict_step(const Plan& plan, const Hardware& hardware, const Calibration* calibration = nullptr);

// make_plan, then predict. Throws std::invalid_argument where validate() has problems.
Report predict(const Scenario& scenario, const Calibration* calibration = nullptr);

}  // namespace sim
