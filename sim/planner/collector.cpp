#include "sim/planner/collector.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "sim/plan/legality.h"
#include "sim/planner/candidate_walk.h"
#include "sim/planner/search_parts.h"

namespace sim {
namespace {

auto order_by(Objective objective) {
  return [objective](const Candidate& a, const Candidate& b) {
    return std::make_tuple(cost(a, objective), cost(a, Objective::time), a.index) <
           std::make_tuple(cost(b, objective), cost(b, Objective::time), b.index);
  };
}

double time_of(const Candidate& c) {
  return cost(c, Objective::time);
}

bool no_worse(const Candidate& a, const Candidate& b) {
  return std::ranges::none_of(kAll<Objective>, [&](Objective o) { return cost(a, o) > cost(b, o); });
}

// Which constraint a candidate breaks first; empty: none.
std::string_view broken(const Candidate& c, const Constraints& limits, Bytes most_memory) {
  if (c.memory > most_memory) return "memory";
  if (limits.slowest_step && c.step > *limits.slowest_step) return "slowest_step";
  return broken_rate(c, limits);
}

}  // namespace

double cost(const Candidate& c, Objective objective) {
  switch (objective) {
    case Objective::time:
      return 1 / c.tokens_per_second;
    case Objective::memory:
      return static_cast<double>(c.memory.value);
    case Objective::money:
      return c.usd_per_million_tokens;
    case Objective::energy:
      return c.kwh_per_million_tokens;
  }
  return 0;
}

void cut_best(std::vector<Candidate>& best, Objective objective, std::size_t most) {
  cut_to(best, most, order_by(objective));
}

void cut_front(std::vector<Candidate>& front) {
  std::ranges::sort(front, {}, [](const Candidate& c) {
    return std::make_tuple(cost(c, Objective::time), c.memory.value, cost(c, Objective::money),
                           cost(c, Objective::energy), c.index);
  });
  std::vector<Candidate> kept;
  for (Candidate& c : front) {
    const bool beaten =
        std::any_of(kept.rbegin(), kept.rend(), [&](const Candidate& k) { return no_worse(k, c); });
    if (!beaten) kept.push_back(std::move(c));
  }
  front = std::move(kept);
}

void cut_points(std::vector<Candidate>& points, std::size_t most) {
  if (points.size() > most) {
    std::ranges::nth_element(points, points.begin() + static_cast<std::ptrdiff_t>(most), {},
                             [](const Candidate& c) { return hash_of(c.index); });
    points.resize(most);
  }
  std::ranges::sort(points, {}, &Candidate::index);
}

void join_points(std::vector<Candidate>& into, const std::vector<Candidate>& other, std::size_t most) {
  const auto joint = static_cast<std::ptrdiff_t>(into.size());
  into.insert(into.end(), other.begin(), other.end());
  if (into.size() > most) return cut_points(into, most);
  std::ranges::inplace_merge(into, into.begin() + joint, {}, &Candidate::index);
}

std::uint64_t most_drawn(const SearchSpace& space, std::size_t most_points) {
  constexpr std::int64_t kTried = 2048;
  const std::int64_t candidates = size(space);
  if (most_points == 0) return 0;
  // Most of a small space would be drawn whatever was found here.
  constexpr std::int64_t kWorthwhile = 16;
  if (candidates / kWorthwhile < std::max(kTried, static_cast<std::int64_t>(most_points))) return kDrawsAll;
  std::int64_t legal = 0;
  for (std::int64_t i = 0; i < kTried; ++i) {
    const auto index = static_cast<std::int64_t>(hash_of(i) % static_cast<std::uint64_t>(candidates));
    const Scenario s = candidate(space, index);
    if (validate(s).empty() && said_twice(space, s.strategy).empty()) ++legal;
  }
  // Both counts get a margin of three standard deviations, so that enough are drawn.
  const auto less = [](double count) { return count - 3 * std::sqrt(count); };
  const double wanted = static_cast<double>(most_points), share = less(static_cast<double>(legal)) / kTried;
  const double drawn = (wanted + 3 * std::sqrt(wanted)) / (share * static_cast<double>(candidates));
  if (share <= 0 || drawn >= 1) return kDrawsAll;
  return static_cast<std::uint64_t>(drawn * static_cast<double>(kDrawsAll));
}

Collector::Collector(const SearchSpace& space, const Constraints& constraints, const Tariff& tariff,
                     const SearchOptions& options, std::uint64_t draw_below)
    : options_(options), constraints_(constraints), tariff_(tariff), draw_below_(draw_below) {
  most_memory_ = usable_memory(space.base.hardware, constraints);
  limits_time_ = constraints.slowest_step || constraints.least_tokens_per_second ||
                 constraints.most_usd_per_million_tokens || constraints.most_kwh_per_million_tokens;
}

std::size_t Collector::reason(const std::string& what) {
  const auto known = std::ranges::find(reasons_, what);
  if (known != reasons_.end()) return static_cast<std::size_t>(known - reasons_.begin());
  reasons_.push_back(what);
  refused_.push_back(0);
  return reasons_.size() - 1;
}

void Collector::add_too_large(std::int64_t index, Bytes memory) {
  ++legal_;
  refuse(reason("memory"), 1);
  if (smallest_ >= 0 && std::tie(smallest_memory_, smallest_) <= std::tie(memory, index)) return;
  smallest_ = index;
  smallest_memory_ = memory;
}

Candidate Collector::candidate(std::int64_t index, std::int32_t devices, double tokens,
                               const Estimate& estimate) const {
  Candidate c{.index = index,
              .devices = devices,
              .step = estimate.step,
              .memory = estimate.memory,
              .tokens_per_second = tokens / estimate.step.value};
  set_costs(c, tariff_);
  return c;
}

Collector::Added Collector::add(std::int64_t index, std::int32_t devices, double tokens,
                                const Estimate& estimate) {
  Added added{.fits_memory = estimate.memory <= most_memory_, .refused_by = {}, .kept = false};
  Candidate c = candidate(index, devices, tokens, estimate);
  if (smallest_ < 0 || std::tie(c.memory, c.index) < std::tie(smallest_memory_, smallest_)) {
    smallest_ = index;
    smallest_memory_ = c.memory;
  }
  const std::string_view constraint = broken(c, constraints_, most_memory_);
  if (added.fits_memory && (!fastest_ || order_by(Objective::time)(c, *fastest_))) fastest_ = c;
  if (constraint.empty()) {
    for (const Objective o : kAll<Objective>) added.kept |= keep_best(c, o);
    added.kept |= keep_front(c);
  } else {
    added.refused_by = reason(std::string(constraint));
  }
  count(added);
  if (is_drawn(index)) {
    c.refused_by = constraint;
    draw(c);
  }
  return added;
}

Bytes Collector::memory_that_matters(std::int32_t devices, double tokens, Seconds least) const {
  constexpr Bytes kAny{std::numeric_limits<std::int64_t>::max()};
  if (limits_time_ || !fastest_ || smallest_ < 0 || least <= fastest_->step) return kAny;
  const Candidate c = candidate(0, devices, tokens, {least, {}});
  Bytes most = smallest_memory_;
  for (const Objective objective : kAll<Objective>) {
    const Best& best = best_[objective];
    if (!best.full) return kAny;
    if (objective == Objective::memory)
      most = std::max(most, Bytes{static_cast<std::int64_t>(best.worst)});
    else if (cost(c, objective) <= best.worst)
      return kAny;
  }
  const auto found = fronts_.find(devices);
  if (found == fronts_.end()) return kAny;
  // Among the faster candidates, the slowest has the least memory.
  const std::vector<Candidate>& front = found->second;
  const double time = time_of(c);
  const auto slower = std::ranges::lower_bound(front, time, {}, time_of);
  return slower == front.begin() ? kAny : std::max(most, std::prev(slower)->memory);
}

bool Collector::keep_best(const Candidate& c, Objective objective) {
  Best& best = best_[objective];
  if (options_.most_kept == 0 || (best.full && cost(c, objective) > best.worst)) return false;
  best.kept.push_back(c);
  if (best.kept.size() < (best.full ? 2 : 1) * options_.most_kept) return true;
  cut_best(best.kept, objective, options_.most_kept);
  best.full = true;
  best.worst = cost(best.kept.back(), objective);
  return true;
}

bool Collector::keep_front(const Candidate& c) {
  std::vector<Candidate>& front = fronts_[c.devices];
  const double time = time_of(c);
  const auto slower = std::ranges::lower_bound(front, time, {}, time_of);
  // The candidate before is faster, and needs the least memory of all that are.
  if (slower != front.begin() && std::prev(slower)->memory <= c.memory) return false;
  auto last = slower;
  for (; last != front.end() && last->memory >= c.memory; ++last)
    if (time_of(*last) == time && last->memory == c.memory && last->index < c.index) return false;
  if (slower != front.end() && time_of(*slower) == time && slower->memory < c.memory) return false;
  front.insert(front.erase(slower, last), c);
  return true;
}

void Collector::draw(const Candidate& c) {
  points_.push_back(c);
  if (points_.size() < 2 * options_.most_points) return;
  cut_points(points_, options_.most_points);
  draw_below_ = 0;
  for (const Candidate& p : points_) draw_below_ = std::max(draw_below_, hash_of(p.index) + 1);
}

void Collector::learn(const SearchResult& found) {
  for (const Objective objective : kAll<Objective>) {
    const std::vector<Candidate>& kept = found.best[objective];
    if (kept.empty() || kept.size() < options_.most_kept) continue;
    Best& best = best_[objective];
    const double worst = cost(kept.back(), objective);
    best.worst = best.full ? std::min(best.worst, worst) : worst;
    best.full = true;
  }
  for (const Candidate& c : found.front) keep_front(c);
  if (options_.most_points == 0 || found.points.size() < options_.most_points) return;
  std::uint64_t largest = 0;
  for (const Candidate& p : found.points) largest = std::max(largest, hash_of(p.index));
  draw_below_ = std::min(draw_below_, largest + 1);
}

SearchResult Collector::take() {
  SearchResult r;
  r.looked_at = std::exchange(looked_at_, 0);
  r.legal = std::exchange(legal_, 0);
  r.evaluated = std::exchange(evaluated_, 0);
  r.fitting = std::exchange(fitting_, 0);
  for (std::size_t i = 0; i < reasons_.size(); ++i)
    if (const std::int64_t n = std::exchange(refused_[i], 0); n > 0) r.refused[reasons_[i]] = n;
  for (const Objective o : kAll<Objective>) {
    r.best[o] = std::exchange(best_[o].kept, {});
    cut_best(r.best[o], o, options_.most_kept);
  }
  for (const auto& [devices, front] : fronts_) r.front.insert(r.front.end(), front.begin(), front.end());
  cut_front(r.front);
  r.points = std::exchange(points_, {});
  cut_points(r.points, options_.most_points);
  r.fastest = std::exchange(fastest_, {});
  if (smallest_ >= 0) {
    r.smallest.emplace();
    r.smallest->index = smallest_;
    r.smallest->memory = smallest_memory_;
  }
  smallest_ = -1;
  return r;
}

}  // namespace sim
