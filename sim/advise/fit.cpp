#include "sim/advise/fit.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/report/memory_report.h"
#include "sim/report/metrics.h"

namespace sim {
namespace {

struct Change {
  std::string text;
  std::function<void(Scenario&)> apply;
};

// Doubles the ranks of one kind, and takes them from the data-parallel ranks.
Change doubled(const std::string& field, int Strategy::*ranks, const Scenario& s) {
  return {"strategy." + field + " " + std::to_string(2 * (s.strategy.*ranks)) + ", strategy.data_parallel " +
              std::to_string(s.strategy.data_parallel / 2),
          [ranks](Scenario& changed) {
            changed.strategy.*ranks *= 2;
            changed.strategy.data_parallel /= 2;
          }};
}

std::vector<Change> candidates(const Scenario& s) {
  const Strategy& p = s.strategy;
  std::vector<Change> changes;
  for (const Recompute r : {Recompute::selective, Recompute::full})
    if (p.recompute == Recompute::none || (p.recompute == Recompute::selective && r == Recompute::full))
      changes.push_back(
          {"strategy.recompute " + std::string(name(r)), [r](Scenario& c) { c.strategy.recompute = r; }});
  if (s.workload.micro_batch_size % 2 == 0)
    changes.push_back({"workload.micro_batch_size " + std::to_string(s.workload.micro_batch_size / 2),
                       [](Scenario& c) { c.workload.micro_batch_size /= 2; }});
  if (p.data_parallel % 2 == 0) {
    changes.push_back(doubled("tensor_parallel", &Strategy::tensor_parallel, s));
    changes.push_back(doubled("pipeline_parallel", &Strategy::pipeline_parallel, s));
    changes.push_back(doubled("context_parallel", &Strategy::context_parallel, s));
  }
  if (p.data_parallel * p.context_parallel > 1)
    for (int stage = p.zero_stage + 1; stage <= 3; ++stage)
      changes.push_back({"strategy.zero_stage " + std::to_string(stage),
                         [stage](Scenario& c) { c.strategy.zero_stage = stage; }});
  if (p.tensor_parallel > 1 && !p.sequence_parallel)
    changes.push_back(
        {"strategy.sequence_parallel true", [](Scenario& c) { c.strategy.sequence_parallel = true; }});
  if (s.implementation.master_weights)
    changes.push_back({"implementation.master_weights false",
                       [](Scenario& c) { c.implementation.master_weights = false; }});
  return changes;
}

}  // namespace

std::vector<FitChange> changes_that_fit(const Scenario& scenario, const Calibration* calibration) {
  const auto peak_of = [](const Plan& plan) {
    const std::size_t program = fullest_program(plan);
    const MemoryPlan memory = plan_memory(plan, program, Addresses::none);
    return device_memory(plan, memory).total();
  };
  const Bytes before = peak_of(make_plan(scenario));
  std::vector<FitChange> fitting;
  for (const Change& change : candidates(scenario)) {
    FitChange c{.change = change.text, .scenario = scenario, .peak = {}, .step = {}};
    change.apply(c.scenario);
    if (!validate(c.scenario).empty()) continue;
    const Plan plan = make_plan(c.scenario);
    c.peak = peak_of(plan);
    if (c.peak >= before) continue;
    c.step = predict_step(plan, c.scenario.hardware, calibration).seconds;
    c.fits = c.peak <= c.scenario.hardware.memory;
    fitting.push_back(std::move(c));
  }
  std::ranges::stable_sort(fitting, {}, [](const FitChange& c) {
    return std::make_tuple(!c.fits, c.fits ? c.step.value : 0.0, c.peak.value);
  });
  return fitting;
}

}  // namespace sim
