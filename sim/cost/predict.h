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

Price price(const Work& work, const Operation& op, const Variables& v, const Hardware& hardware,
            const Calibration* calibration);

// A report of one training step, or of a whole generation. calibration may be null.
Report predict(const Plan& plan, const Hardware& hardware, const Calibration* calibration = nullptr);

// make_plan, then predict. Throws std::invalid_argument where validate() has problems.
Report predict(const Scenario& scenario, const Calibration* calibration = nullptr);

}  // namespace sim
