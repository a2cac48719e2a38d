// What an operation costs in time on a device, how sure that is, and what bounds it.
#pragma once
#include <string_view>

#include "sim/cost/calibration.h"
#include "sim/cost/work.h"
#include "sim/plan/plan.h"
#include "sim/report/report.h"

namespace sim {

struct Price {
  Seconds seconds, low, high;  // 90 % band
  Bound bound{};
  Provenance provenance{};
};

// `group` is the operation's where it is a collective; `working_set` is what the plan touches before it comes
// back to the same operands (KernelSample), 0 where that is not known; `attention` is whose kernel runs,
// where tables of GPUs have several.
Price price(const Work& work, const Operation& op, const Variables& v, const Hardware& hardware,
            const Calibration* calibration, const Group* group = nullptr, Bytes working_set = {},
            std::string_view attention = {});

}  // namespace sim
