#include "sim/planner/estimate.h"

#include <stdexcept>

#include "sim/cost/predict.h"
#include "sim/report/metrics.h"

namespace sim {

struct Estimator::Memo {
  Scenario base;
  const Calibration* calibration;
};

Estimator::Estimator(const Scenario& base, const Calibration* calibration)
    : memo_(new Memo{base, calibration}) {}
Estimator::~Estimator() = default;
Estimator::Estimator(Estimator&&) noexcept = default;
Estimator& Estimator::operator=(Estimator&&) noexcept = default;

Estimate Estimator::estimate(const Strategy& strategy, const Workload& workload) {
  Scenario s = memo_->base;
  s.strategy = strategy;
  s.workload = workload;
  const Report report = predict(s, memo_->calibration);
  return {report.step_time, peak_memory(report)};
}

Estimate estimate(const Scenario& scenario, const Calibration* calibration) {
  const std::vector<Problem> problems = validate(scenario);
  if (!problems.empty()) throw std::invalid_argument(problems[0].field + ": " + problems[0].message);
  if (scenario.workload.task != Task::train)
    throw std::invalid_argument("workload.task: must be train: estimates are of training steps");
  return Estimator(scenario, calibration).estimate(scenario.strategy, scenario.workload);
}

}  // namespace sim
