// What ridgepoint plan writes: counts, the best, the Pareto front, the winner beside the runner-up, and the
// command that predicts it, as text, JSON, CSV or Markdown.
#pragma once
#include <string>
#include <vector>

#include "app/cli/plan_search.h"

namespace app::cli {

struct PlanOutcome {
  bool complete = true;  // else it was stopped: of what was looked at until then
  std::vector<PlanSearch> searches;
  std::vector<PlanFound> found;  // of each
};

// Searches of a sweep end in one table, a row each.
std::string plan_as(const PlanOutcome& outcome, const PlanFlags& flags);

}  // namespace app::cli
