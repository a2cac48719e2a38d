#include "app/gui/predictor.h"

#include <chrono>
#include <exception>
#include <utility>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/report/memory_report.h"
#include "sim/report/metrics.h"

namespace app::gui {
namespace {

struct Choice {
  std::string field, label, short_label;
  sim::Scenario scenario;
};

// Every choice one step away whose price is worth a line. Each changes the field that it names and no other.
std::vector<Choice> choices_near(const sim::Scenario& scenario) {
  std::vector<Choice> choices;
  const auto add = [&](std::string field, std::string label, std::string short_label, auto change) {
    sim::Scenario other = scenario;
    change(other);
    if (!(other == scenario))
      choices.push_back({std::move(field), std::move(label), std::move(short_label), std::move(other)});
  };
  if (scenario.workload.task == sim::Task::train) {
    add("strategy.recompute", "no recompute", "none",
        [](sim::Scenario& s) { s.strategy.recompute = sim::Recompute::none; });
    add("strategy.recompute", "selective recompute", "selective",
        [](sim::Scenario& s) { s.strategy.recompute = sim::Recompute::selective; });
    add("strategy.recompute", "full recompute", "full",
        [](sim::Scenario& s) { s.strategy.recompute = sim::Recompute::full; });
    // With the same global batch: twice as much where that divides it, else half.
    const std::int64_t now = scenario.workload.micro_batch_size, replicas = scenario.strategy.data_parallel;
    const bool divides = scenario.workload.global_batch_size % (2 * now * replicas) == 0;
    const std::int64_t micro_batch = divides ? 2 * now : std::max<std::int64_t>(1, now / 2);
    add("workload.micro_batch_size", "micro-batch " + std::to_string(micro_batch),
        std::to_string(micro_batch), [=](sim::Scenario& s) { s.workload.micro_batch_size = micro_batch; });
    add("implementation.attention", "flash attention", "flash",
        [](sim::Scenario& s) { s.implementation.attention = sim::AttentionKind::flash; });
    add("implementation.attention", "standard attention", "standard",
        [](sim::Scenario& s) { s.implementation.attention = sim::AttentionKind::standard; });
  } else {
    add("workload.kv_cache", scenario.workload.kv_cache ? "no KV cache" : "with KV cache",
        scenario.workload.kv_cache ? "off" : "on",
        [](sim::Scenario& s) { s.workload.kv_cache = !s.workload.kv_cache; });
    add("workload.batch_size", "batch " + std::to_string(scenario.workload.batch_size * 2),
        std::to_string(scenario.workload.batch_size * 2),
        [](sim::Scenario& s) { s.workload.batch_size *= 2; });
  }
  return choices;
}

std::vector<LiveLine> live_lines(const sim::Plan& plan) {
  const sim::MemoryPlan memory = sim::plan_memory(plan);
  std::vector<LiveLine> lines;
  for (const sim::LiveBuffer& live : sim::live_at(plan, memory, memory.peak_time)) {
    const sim::Buffer& buffer = plan.buffers[static_cast<std::size_t>(live.buffer)];
    lines.push_back({buffer.name, buffer.buffer_class, live.bytes, live.instances});
  }
  return lines;
}

}  // namespace

Prediction make_prediction(const sim::Scenario& scenario, const sim::Calibration* calibration,
                           const std::function<bool()>& stale) {
  Prediction prediction;
  prediction.scenario = scenario;
  prediction.problems = sim::validate(scenario);
  if (calibration) {
    prediction.calibration = calibration->device + ", " +
                             (calibration->gpu ? calibration->software : calibration->date.substr(0, 10));
    prediction.calibration_residual = calibration->residual.median;
  }
  if (!prediction.problems.empty()) return prediction;
  try {
    const auto begin = std::chrono::steady_clock::now();
    const sim::Plan plan = sim::make_plan(scenario);
    prediction.report =
        std::make_shared<const sim::Report>(sim::predict(plan, scenario.hardware, calibration));
    prediction.spent =
        sim::Seconds{std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
    if (!stale()) prediction.live_at_peak = live_lines(plan);
    if (!stale() && scenario.workload.task == sim::Task::train) {
      prediction.step =
          std::make_shared<const StepView>(make_step_view(plan, scenario.hardware, calibration));
      const auto fullest = static_cast<std::size_t>(prediction.step->fullest_stage);
      prediction.first_step_ledger = sim::memory_ledger(
          plan, sim::plan_memory(plan, fullest, sim::Addresses::none, sim::Step::first), 0);
    }
    if (!stale() && scenario.workload.task == sim::Task::train && !sim::fits(*prediction.report))
      prediction.fixes = sim::changes_that_fit(scenario, calibration);
  } catch (const std::exception& error) {
    prediction.failure = error.what();
    return prediction;
  }
  for (Choice& choice : choices_near(scenario)) {
    if (stale()) break;
    if (!sim::validate(choice.scenario).empty()) continue;
    try {
      sim::Report report = sim::predict(choice.scenario, calibration);
      prediction.alternatives.push_back({std::move(choice.field), std::move(choice.label),
                                         std::move(choice.short_label), std::move(choice.scenario),
                                         std::move(report)});
    } catch (const std::exception&) {
      // A neighbour that cannot be priced (its hardware lacks the type) is no alternative.
    }
  }
  return prediction;
}

}  // namespace app::gui
