// plan + hardware (+ calibration) -> report. Each block is priced once per distinct set of variables; then
// the programs run.
#pragma once
#include "sim/cost/calibration.h"
#include "sim/plan/plan.h"
#include "sim/report/report.h"

namespace sim {

struct PricedPlan;

// A report of one training step, or of a whole generation. calibration may be null. Rows are those of the
// first rank of each pipeline stage, for all of which do the same; communication that hides behind compute
// has a duration, but adds nothing to the step. A receive's duration is what its stage waits. The step's band
// is the step with all operations at the ends of theirs: errors of kernels on one machine go together. A
// generation by an inference engine has the times and rows of the engine's passes (cost/static_batch.h).
Report predict(const Plan& plan, const Hardware& hardware, const Calibration* calibration = nullptr);
// The same where price_plan() (cost/priced_plan.h) has priced the plan for that hardware and calibration.
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
