// Searches of strategies: every one that the choices allow, and two of them side by side.
#pragma once
#include <array>
#include <cstdint>
#include <memory>

#include "app/gui/jobs/plan_limits.h"
#include "app/gui/jobs/study.h"
#include "sim/planner/explain.h"
#include "sim/planner/search.h"

namespace app::gui {

// What a search may vary of a scenario, and what a strategy must keep to.
struct PlannerChoices {
  std::int64_t devices = 0;  // at most; 0: the scenario's
  bool fewer = false;        // halves of them, too
  bool tensor = true, pipeline = true, context = true, experts = true;
  bool sharding = true, recompute = true, micro_batch = true, offload = false;
  double memory_share = 0.95;  // of each device's
  double slowest_step_s = 0;   // 0: any
  PlanLimits limits;
  bool operator==(const PlannerChoices&) const = default;
};

struct PlannerQuestion {
  sim::Scenario scenario;                               // of training
  std::shared_ptr<const sim::Calibration> calibration;  // may be null
  PlannerChoices choices;
};

sim::SearchSpace space_of(const PlannerQuestion& question);
sim::Constraints constraints_of(const PlannerChoices& choices);

struct PlannerView {
  sim::SearchSpace space;
  sim::Tariff tariff;
  sim::SearchResult result;  // so far
};
using PlannerStudy = Study<PlannerQuestion, PlannerView>;
// What was found so far is shown while it goes on; the parts of its course are candidates. Throws where there
// is nothing to search.
PlannerView search_strategies(const PlannerQuestion& question, const PlannerStudy::Course& course);

// Two candidates of a space, compared by what each spends its step on.
struct PicksQuestion {
  std::array<std::int64_t, 2> picks{};
  sim::SearchSpace space;
  std::shared_ptr<const sim::Calibration> calibration;  // may be null
  bool operator==(const PicksQuestion&) const = default;
};
sim::Explanation explain_picks(const PicksQuestion& question);

}  // namespace app::gui
