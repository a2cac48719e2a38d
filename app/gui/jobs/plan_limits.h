// What both searches of the planner panel share, whatever is searched: limits, and the two candidates that
// are compared.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

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

using Picks = std::array<std::optional<std::int64_t>, 2>;  // candidates
inline std::vector<std::int64_t> picked(const Picks& picks) {
  std::vector<std::int64_t> ones;
  for (const auto& pick : picks)
    if (pick) ones.push_back(*pick);
  return ones;
}

// The picked candidates; with fewer than two, also the best ones whose cost differs from the first's.
template <class Candidate, class Find, class Differs>
std::vector<std::int64_t> compared_candidates(const Picks& picks, const std::vector<Candidate>& best,
                                              Find find, Differs differs) {
  std::vector<std::int64_t> ones = picked(picks);
  const Candidate* first = ones.empty() ? nullptr : find(ones[0]);
  for (const Candidate& c : best) {
    if (ones.size() == 2) break;
    if ((first && !differs(*first, c)) || (!ones.empty() && ones[0] == c.index)) continue;
    ones.push_back(c.index);
    if (!first) first = &c;
  }
  return ones;
}

}  // namespace app::gui
