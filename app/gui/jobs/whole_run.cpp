#include "app/gui/jobs/whole_run.h"

#include "sim/economics/scaling_law.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

const sim::EconomicRates& rates() {
  static const sim::EconomicRates read = [] {
    try {
      return sim::load_economic_rates();
    } catch (const sim::PresetError&) {
      return sim::EconomicRates{};  // Economics says what is the matter
    }
  }();
  return read;
}

}  // namespace

std::optional<WholeRun> whole_run(const sim::Report& report) {
  const sim::Scenario& scenario = report.source.scenario;
  const bool train = scenario.workload.task == sim::Task::train;
  const sim::HourlyPrice* price = rates().price_of(scenario.hardware.name);
  const double devices = scenario.strategy.devices();
  const sim::Reliability reliability;
  sim::RunPlan plan;
  plan.tokens =
      train ? sim::compute_optimal_tokens(static_cast<double>(sim::count_parameters(scenario.model).active))
            : 1e6;
  plan.tokens_per_second = sim::tokens_per_second(report);
  plan.devices = devices;
  plan.power_w = scenario.hardware.power_w;
  plan.usd_per_device_hour = price ? price->usd() : 0;
  if (!rates().sites.empty()) plan.site = rates().sites.front();
  if (train)
    plan.goodput = sim::goodput(reliability, devices, sim::best_checkpoint_interval(reliability, devices));
  if (!(plan.tokens_per_second > 0) || !(plan.goodput > 0)) return std::nullopt;
  return WholeRun{plan.tokens, sim::cost_of_run(plan), price != nullptr, plan.power_w > 0};
}

}  // namespace app::gui
