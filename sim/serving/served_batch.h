// A generation as an inference engine serves it: a batch of the workload's size, beside what its memory
// holds.
#pragma once
#include "sim/report/report.h"
#include "sim/serving/engine_limits.h"
#include "sim/serving/static_batch.h"

namespace sim {

// Whether the scenario is one of an inference engine, whose profile says what lies between kernels.
bool is_served(const Scenario& scenario);

struct ServedBatch {
  StaticBatchTimes times;
  double band = 1;               // of all times: ratio of the 90 % band's upper end to the expected
  double output_per_second = 0;  // tokens, of all sequences
  EngineMemory memory;
  double requests_that_fit = 0;  // of the workload's lengths, at a time
};

// Throws std::invalid_argument where validate() has problems or nobody serves the scenario.
ServedBatch served_batch(const Scenario& scenario, const Calibration* calibration);

// The report with the engine's times for those that its operations alone would take: the whole generation,
// and each token. Rows stay those of the plan's operations, without what the engine does between them.
Report with_engine_times(Report report, const ServedBatch& served);

}  // namespace sim
