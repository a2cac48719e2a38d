// plan + hardware (+ calibration) -> report. Each block is priced once per distinct set of variables; then
// the programs run.
#pragma once
#include <optional>

#include "sim/cost/calibration.h"
#include "sim/cost/work.h"
#include "sim/plan/memory.h"
#include "sim/plan/plan.h"
#include "sim/report/report.h"

namespace sim {

struct Price {
  Seconds seconds, low, high;  // 90 % band
  Bound bound{};
  Provenance provenance{};
};

// `group` is the operation's where it is a collective; `working_set` is what the plan touches before it comes
// back to the same operands (KernelSample), 0 where that is not known.
Price price(const Work& work, const Operation& op, const Variables& v, const Hardware& hardware,
            const Calibration* calibration, const Group* group = nullptr, Bytes working_set = {});

// A report of one training step, or of a whole generation. calibration may be null. Rows are those of the
// first rank of each pipeline stage, for all of which do the same; communication that hides behind compute
// has a duration, but adds nothing to the step. A receive's duration is what its stage waits. The step's band
// is the step with all operations at the ends of theirs: errors of kernels on one machine go together.
Report predict(const Plan& plan, const Hardware& hardware, const Calibration* calibration = nullptr);

// What a pipeline stage does when: a pass of a micro-batch through a chunk, or a stretch of the optimizer.
struct TimelineSlot {
  std::int32_t stage = 0;
  Phase phase{};         // forward, backward (recompute with it) or optimizer
  bool inputs = false, weights = false;  // which part of a backward pass in two
  std::int32_t micro_batch = 0, chunk = 0;
  Seconds start, end;
};
// By stage, then time; slots of a stage do not overlap.
std::vector<TimelineSlot> pipeline_timeline(const Plan& plan, const Hardware& hardware,
                                            const Calibration* calibration = nullptr);

// make_plan, then predict. Throws std::invalid_argument where validate() has problems.
Report predict(const Scenario& scenario, const Calibration* calibration = nullptr);

}  // namespace sim
