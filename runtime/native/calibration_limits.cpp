#include "runtime/calibration_limits.h"

#include <limits>

namespace runtime {

CalibrationLimits calibration_limits() {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  return {kNone, kNone, 0};
}

}  // namespace runtime
