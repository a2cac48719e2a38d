#include "app/lesson/situation.h"

#include <stdexcept>

#include "app/cli/scenario_flags.h"
#include "sim/cost/predict.h"
#include "sim/plan/legality.h"

namespace app::lesson {

std::shared_ptr<const sim::Report> Predictions::of(const sim::Scenario& scenario) {
  for (const auto& [known, report] : reports_)
    if (known == scenario) return report;
  if (const auto problems = sim::validate(scenario); !problems.empty())
    throw std::invalid_argument(problems.front().field + " " + problems.front().message);
  const auto calibration = cli::calibration_of(scenario.hardware);
  auto report = std::make_shared<const sim::Report>(sim::predict(scenario, cli::pointer_to(calibration)));
  return reports_.emplace_back(scenario, std::move(report)).second;
}

const sim::Scenario& Predictions::changed(const sim::Scenario& from, const Changes& changes,
                                          const std::string& said_by) {
  for (const Changed& known : changed_)
    if (known.from == from && known.changes == changes) return *known.to;
  sim::Scenario to = sim::with_overrides(from, changes, said_by);
  cli::settle_hardware(to, {}, {});
  changed_.push_back({from, changes, std::make_unique<const sim::Scenario>(std::move(to))});
  return *changed_.back().to;
}

void Predictions::forget_if_many() {
  constexpr std::size_t kMany = 256;
  if (reports_.size() > kMany) reports_.clear();
  if (changed_.size() > kMany) changed_.clear();
}

const sim::Report& Situation::report() const {
  if (measured) return *measured;
  if (!predicted_) predicted_ = predictions.of(scenario);
  return *predicted_;
}

}  // namespace app::lesson
