// A generation as an inference engine serves it: a batch of the workload's size, beside what its memory
// holds.
#pragma once
#include "sim/cost/static_batch.h"
#include "sim/serving/engine_limits.h"

namespace sim {

struct ServedBatch {
  StaticBatchTimes times;
  double band = 1;               // of all times: ratio of the 90 % band's upper end to the expected
  double output_per_second = 0;  // tokens, of all sequences
  EngineMemory memory;
  double requests_that_fit = 0;  // of the workload's lengths, at a time
};

// Throws std::invalid_argument where validate() has problems or nobody serves the scenario.
ServedBatch served_batch(const Scenario& scenario, const Calibration* calibration);

// Whether weights and the caches of the scenario's whole batch lie in the memory at the same time.
bool fits(const ServedBatch& served, const Scenario& scenario);
// Devices whose tokens ServedBatch counts: copies that experts are divided over have sequences of their own.
int served_devices(const Scenario& scenario);

}  // namespace sim
