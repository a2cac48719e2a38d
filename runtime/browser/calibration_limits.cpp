#include "runtime/calibration_limits.h"

namespace runtime {

// What tiny models ask for: one thread, a few billion FLOPs a second, and somebody waits. Browsers round the
// time that a page is told to a tenth of a millisecond, so that it cannot spy on others.
CalibrationLimits calibration_limits() {
  return {2e8, 2e9, 1e-4};
}

}  // namespace runtime
