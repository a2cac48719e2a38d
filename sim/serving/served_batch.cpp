#include "sim/serving/served_batch.h"

namespace sim {

ServedBatch served_batch(const Scenario& scenario, const Calibration* calibration) {
  const Workload& w = scenario.workload;
  ServedBatch served;
  served.memory = engine_memory(scenario);
  served.times = static_batch_times(IterationCost(scenario, calibration), scenario);
  served.band = served.times.total.band();
  served.output_per_second =
      static_cast<double>(w.batch_size * w.max_new_tokens) / served.times.total.total().value;
  served.requests_that_fit =
      served.memory.cache_tokens / static_cast<double>(w.prompt_length + w.max_new_tokens);
  return served;
}

bool fits(const ServedBatch& served, const Scenario& scenario) {
  return served.requests_that_fit >= static_cast<double>(scenario.workload.batch_size);
}

int served_devices(const Scenario& scenario) {
  return scenario.strategy.tensor_parallel * scenario.strategy.pipeline_parallel;
}

}  // namespace sim
