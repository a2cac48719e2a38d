// What the planner panel asks for and shows.
#pragma once
#include "app/gui/jobs/planner_study.h"
#include "app/gui/jobs/serving_plan.h"
#include "app/gui/panels/panels.h"
#include "app/gui/panels/two_picks.h"
#include "sim/planner/explain.h"

namespace app::gui {

struct PlannerState {
  explicit PlannerState(const PanelTools& tools);
  // For the document's scenario as it is now.
  void start_search();
  PlannerStudy& search;
  Study<PicksQuestion, sim::Explanation>& comparison;
  Study<ServingPlanQuestion, ServingPlan>& serving_plan;  // where the task is generation

  PlannerChoices choices;
  sim::Objective x = sim::Objective::time, y = sim::Objective::memory;  // of the scatter
  sim::Objective objective = sim::Objective::time;                      // that the table is sorted by
  Picks picks;
  ServingPlanChoices serving;
  int tab = 0;  // where there is room for one part alone

 private:
  PanelTools tools_;
};

// The panel where the task is generation.
void draw_serving_plan(const ContextWith<PlannerState>& context);

}  // namespace app::gui
