// Ways to make a training step fit its devices: single changes of a scenario, each with the memory that it
// needs and the time that it takes.
#pragma once
#include <string>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/scenario/scenario.h"
#include "sim/units.h"

namespace sim {

struct FitChange {
  std::string change;  // every field that changes, as in scenario files: "strategy.recompute full"
  Scenario scenario;   // changed; has no problems
  Bytes peak;          // of the fullest device
  Seconds step;
  bool fits = false;
};

// All single changes that are legal and lower the peak: recompute, half the micro-batch, twice the tensor-,
// pipeline- or context-parallel ranks at the same number of devices, a ZeRO stage more, sequence parallelism,
// no master copy. Changes that fit come first, the fastest first; then those that do not fit, the lowest peak
// first. The scenario must meet the requirement of make_plan().
std::vector<FitChange> changes_that_fit(const Scenario& scenario, const Calibration* calibration);

}  // namespace sim
