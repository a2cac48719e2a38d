// What both searches of the planner panel may be held to, whatever is searched.
#pragma once

namespace app::gui {

// 0: any.
struct PlanLimits {
  double least_tokens_per_second = 0;  // of all devices together
  double most_usd_per_million_tokens = 0, most_kwh_per_million_tokens = 0;
  bool operator==(const PlanLimits&) const = default;
};

// Into constraints of training or of serving.
template <class Constraints>
void hold_to(Constraints& constraints, const PlanLimits& limits) {
  if (limits.least_tokens_per_second > 0)
    constraints.least_tokens_per_second = limits.least_tokens_per_second;
  if (limits.most_usd_per_million_tokens > 0)
    constraints.most_usd_per_million_tokens = limits.most_usd_per_million_tokens;
  if (limits.most_kwh_per_million_tokens > 0)
    constraints.most_kwh_per_million_tokens = limits.most_kwh_per_million_tokens;
}

}  // namespace app::gui
