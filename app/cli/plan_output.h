// Writes the result of ridgepoint plan: counts, the best candidates, the Pareto front, the winner beside the
// runner-up, and the command that predicts the winner, as text, JSON, CSV or Markdown.
#pragma once
#include <string>
#include <vector>

#include "app/cli/plan_search.h"

namespace app::cli {

struct PlanOutcome {
  bool complete = true;  // else it was stopped, and covers what was searched until then
  std::vector<PlanSearch> searches;
  std::vector<PlanFound> found;  // one for each search
};

// The searches of a sweep make one table with a row for each.
std::string plan_as(const PlanOutcome& outcome, const PlanFlags& flags);

}  // namespace app::cli
