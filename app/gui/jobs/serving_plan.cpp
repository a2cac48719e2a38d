#include "app/gui/jobs/serving_plan.h"

#include <algorithm>

#include "app/gui/jobs/inference_study.h"
#include "sim/economics/rates.h"

namespace app::gui {
namespace {

// The candidate that costs something else than the one it stands beside.
bool differs(const sim::ServingCandidate& a, const sim::ServingCandidate& b) {
  return a.tpot != b.tpot || a.tokens_per_second != b.tokens_per_second;
}

}  // namespace

sim::Tariff tariff_of(const sim::Hardware& hardware) {
  const sim::EconomicRates rates = sim::load_economic_rates();
  const sim::HourlyPrice* price = rates.price_of(hardware.name);
  const sim::Site& site = rates.sites.front();
  return {
      .usd_per_device_hour = price ? price->usd() : 0,
      .watts_per_device = hardware.power_w > 0 ? (hardware.power_w + site.host_w_per_device) * site.pue : 0};
}

ServingPlan plan_serving(const ServingPlanQuestion& question) {
  ServingPlan plan;
  const ServingPlanChoices& choices = question.choices;
  const sim::Scenario base = as_served(question.scenario, "");
  const std::int64_t devices =
      choices.devices > 0 ? choices.devices
                          : std::max<std::int64_t>(base.strategy.devices(), base.hardware.devices_per_node);
  std::optional<sim::ServingTraffic> traffic;
  if (choices.requests_per_second > 0) traffic = {.requests_per_second = choices.requests_per_second};
  sim::ServingConstraints constraints;
  constraints.memory_share = choices.memory_share;
  if (choices.most_ttft_s > 0) constraints.most_ttft = sim::Seconds{choices.most_ttft_s};
  if (choices.most_tpot_s > 0) constraints.most_tpot = sim::Seconds{choices.most_tpot_s};
  hold_to(constraints, choices.limits);
  plan.space = sim::every_serving(base, {static_cast<int>(devices)}, traffic);
  plan.tariff = tariff_of(base.hardware);
  const sim::Calibration* calibration = question.calibration.get();
  plan.result = sim::search(plan.space, traffic, constraints, plan.tariff, calibration);
  for (const std::int64_t index : compared_candidates(
           choices.picks, plan.result.best[choices.objective],
           [&](std::int64_t index) -> const sim::ServingCandidate* {
             for (const auto& best : plan.result.best)
               for (const sim::ServingCandidate& c : best)
                 if (c.index == index) return &c;
             return nullptr;
           },
           differs))
    plan.compared.push_back({index, sim::spending(plan.space, traffic, constraints, index, calibration)});
  return plan;
}

}  // namespace app::gui
