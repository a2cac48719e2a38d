#include "sim/serving/served_batch.h"

namespace sim {

bool is_served(const Scenario& scenario) {
  return scenario.workload.task == Task::generate && scenario.implementation.serving.has_value();
}

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

Report with_engine_times(Report report, const ServedBatch& served) {
  report.step_time = served.times.total.total();
  report.step_low = report.step_time * (1 / served.band);
  report.step_high = report.step_time * served.band;
  for (TokenResult& token : report.tokens)
    token.duration = (token.index == 0 ? served.times.first_token : served.times.later_token).total();
  return report;
}

}  // namespace sim
