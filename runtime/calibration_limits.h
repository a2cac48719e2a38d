// How large what a calibration times may be, and how short.
#pragma once

namespace runtime {

struct CalibrationLimits {
  double operation_flops;
  double run_flops;  // of a pass forward and backward
  double tick;       // seconds: of the clock; 0: next to none
};
CalibrationLimits calibration_limits();

}  // namespace runtime
