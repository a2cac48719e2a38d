// What would make a training step fit its devices: single changes of a scenario, each with what it saves and
// what it costs.
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
// no master copy. Those that fit come first, then by time; of those that do not, the lowest peak first. The
// requirement of the scenario is that of make_plan().
std::vector<FitChange> changes_that_fit(const Scenario& scenario, const Calibration* calibration);

}  // namespace sim
