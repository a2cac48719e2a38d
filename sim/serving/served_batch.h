// A generation as an inference engine serves it: the times of a batch of the workload's size, and how many
// requests fit in memory.
#pragma once
#include "sim/cost/static_batch.h"
#include "sim/serving/engine_limits.h"

namespace sim {

struct ServedBatch {
  StaticBatchTimes times;
  double band = 1;               // of all times: ratio of the 90 % band's upper end to the expected
  double output_per_second = 0;  // tokens, of all sequences
  EngineMemory memory;
  double requests_that_fit = 0;  // at the same time, with the workload's lengths
};

// Throws std::invalid_argument where validate() has problems or the implementation has no serving profile.
ServedBatch served_batch(const Scenario& scenario, const Calibration* calibration);

// Whether the weights and the caches of the scenario's whole batch fit in memory together.
bool fits(const ServedBatch& served, const Scenario& scenario);
// Devices whose tokens ServedBatch counts: one copy's. Copies that share experts have their own sequences.
int served_devices(const Scenario& scenario);

}  // namespace sim
