// What searches of training and of serving have in common. Included by .cpp files only.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "sim/plan/legality.h"
#include "sim/planner/search.h"

namespace sim {

inline void throw_first(const std::vector<Problem>& problems) {
  if (!problems.empty()) throw std::invalid_argument(problems[0].field + ": " + problems[0].message);
}

// Degrees up to `most` that divide any of the numbers.
inline std::vector<int> divisors(const std::vector<int>& numbers, std::int64_t most) {
  std::vector<int> found;
  for (const int n : numbers)
    for (int k = 1; k <= n && k <= most; ++k)
      if (n % k == 0) found.push_back(k);
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Candidates of fields that have so many values; saturates at the largest number. 0: a field has none.
inline std::int64_t product(const std::vector<std::size_t>& values) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::int64_t n = 1;
  for (const std::size_t size : values) {
    const auto v = static_cast<std::int64_t>(size);
    if (v == 0) return 0;
    n = n > most / v ? most : n * v;
  }
  return n;
}

// Throws std::out_of_range.
template <class Space>
void require_candidate(const Space& space, std::int64_t index) {
  if (index < 0 || index >= size(space))
    throw std::out_of_range("candidate " + std::to_string(index) + " of a space of " +
                            std::to_string(size(space)));
}

template <class Limits>
Bytes usable_memory(const Hardware& hardware, const Limits& limits) {
  const double whole = static_cast<double>(hardware.memory.value);
  return Bytes{std::llround(whole * limits.memory_share)} - limits.memory_reserved;
}

inline void require_positive(const char* field, bool is, std::vector<Problem>& found) {
  if (!is) found.push_back({field, "must be above 0"});
}
template <class Limits>
std::vector<Problem> problems_of_limits(const Limits& c) {
  std::vector<Problem> found;
  if (!(c.memory_share > 0 && c.memory_share <= 1))
    found.push_back({"memory_share", "must be above 0 and at most 1, all of a device's memory"});
  if (c.memory_reserved.value < 0) found.push_back({"memory_reserved", "must be 0 bytes or more"});
  const auto positive = [&](const char* field, const std::optional<double>& limit) {
    require_positive(field, !limit || *limit > 0, found);
  };
  positive("least_tokens_per_second", c.least_tokens_per_second);
  positive("most_usd_per_million_tokens", c.most_usd_per_million_tokens);
  positive("most_kwh_per_million_tokens", c.most_kwh_per_million_tokens);
  return found;
}

// Which limit of rates and costs a candidate breaks first; empty: none.
template <class Any, class Limits>
std::string_view broken_rate(const Any& c, const Limits& limits) {
  if (limits.least_tokens_per_second && c.tokens_per_second < *limits.least_tokens_per_second)
    return "least_tokens_per_second";
  if (limits.most_usd_per_million_tokens && c.usd_per_million_tokens > *limits.most_usd_per_million_tokens)
    return "most_usd_per_million_tokens";
  if (limits.most_kwh_per_million_tokens && c.kwh_per_million_tokens > *limits.most_kwh_per_million_tokens)
    return "most_kwh_per_million_tokens";
  return {};
}

// What a candidate's tokens cost, from its rate and its devices.
template <class Any>
void set_costs(Any& c, const Tariff& tariff) {
  const double hours = 1e6 / c.tokens_per_second / 3600 * c.devices;
  c.usd_per_million_tokens = hours * tariff.usd_per_device_hour;
  c.kwh_per_million_tokens = hours * tariff.watts_per_device * 1e-3;
}

// Counts, and candidates that are yet to be cut.
template <class Result>
void add_found(Result& into, const Result& other) {
  into.looked_at += other.looked_at;
  into.legal += other.legal;
  into.evaluated += other.evaluated;
  into.fitting += other.fitting;
  for (const auto& [reason, n] : other.refused) into.refused[reason] += n;
  for (std::size_t o = 0; o < into.best.size(); ++o)
    into.best[o].insert(into.best[o].end(), other.best[o].begin(), other.best[o].end());
  into.front.insert(into.front.end(), other.front.begin(), other.front.end());
}

template <class Any, class Order>
void cut_to(std::vector<Any>& best, std::size_t most, const Order& before) {
  std::ranges::sort(best, before);
  if (best.size() > most) best.resize(most);
}

}  // namespace sim
