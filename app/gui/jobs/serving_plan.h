// Every way to serve the scenario's model on some devices, searched off the interface's thread; fast enough
// to follow a slider.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/jobs/plan_limits.h"
#include "sim/planner/serving_search.h"

namespace app::gui {

// 0: any, or what suits the scenario.
struct ServingPlanChoices {
  std::int64_t devices = 0;
  double requests_per_second = 0;  // 0: batches that begin and end together
  double most_ttft_s = 0, most_tpot_s = 0;
  double memory_share = 1;
  PlanLimits limits;
  sim::ServingObjective objective = sim::ServingObjective::throughput;
  Picks picks;
  bool operator==(const ServingPlanChoices&) const = default;
};

struct ServingPlanQuestion {
  sim::Scenario scenario;
  std::shared_ptr<const sim::Calibration> calibration;  // may be null
  ServingPlanChoices choices;
  bool operator==(const ServingPlanQuestion&) const = default;
};

// What a candidate spends its time on.
struct ServingPlanPick {
  std::int64_t index = 0;
  sim::ServingSpending spending;
};

struct ServingPlan {
  sim::ServingSpace space;
  sim::Tariff tariff;
  sim::ServingResult result;
  std::vector<ServingPlanPick> compared;  // what was picked, and the best where that leaves a place
};

// Throws where the model cannot be served.
ServingPlan plan_serving(const ServingPlanQuestion& question);

// The usual market's price, and the power at the first site. Throws sim::PresetError.
sim::Tariff tariff_of(const sim::Hardware& hardware);

}  // namespace app::gui
