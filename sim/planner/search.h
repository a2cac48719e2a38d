// Exhaustive search of a space of training strategies: every candidate is estimated, none is sampled. Results
// do not depend on threads, nor on how a space is cut into ranges.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "sim/enum_array.h"
#include "sim/plan/legality.h"
#include "sim/planner/estimate.h"
#include "sim/planner/search_space.h"

namespace sim {

class Schedules;  // schedule_facts.h

// What devices cost while they run.
struct Tariff {
  double usd_per_device_hour = 0;
  double watts_per_device = 0;  // with its share of the node and the site: (device + host) x PUE
};

// What a candidate must keep to; absent: anything goes.
struct Constraints {
  double memory_share = 1;  // of each device's memory that a step may take, in (0, 1]
  Bytes memory_reserved;    // of each device's memory for others
  std::optional<Seconds> slowest_step;
  std::optional<double> least_tokens_per_second;  // of all devices together
  std::optional<double> most_usd_per_million_tokens;
  std::optional<double> most_kwh_per_million_tokens;
};
// Empty where they can be kept to by something: a share outside (0, 1], limits at or below 0.
std::vector<Problem> problems(const Constraints& constraints);

enum class Objective { time, memory, money, energy };

// A candidate with what follows from its estimate.
struct Candidate {
  std::int64_t index = 0;  // in the space
  std::int32_t devices = 0;
  Seconds step;
  Bytes memory;
  double tokens_per_second = 0;  // of all devices together
  double usd_per_million_tokens = 0, kwh_per_million_tokens = 0;
  // For points alone: the constraint that refuses it ("memory"), empty where none does.
  std::string refused_by = {};

  bool operator==(const Candidate&) const = default;
};
// Less of an objective is better: seconds a token, bytes, US dollars and kWh a million tokens.
double cost(const Candidate& candidate, Objective objective);

struct SearchResult {
  std::int64_t begin = 0, end = 0;  // candidates that were asked for
  std::int64_t looked_at = 0;       // of these; less where the search was stopped
  std::int64_t legal = 0;           // without contradiction
  // Candidates whose memory is found. The time is found for those that are among the best, the front or the
  // points; for the others a bound shows that they are not.
  std::int64_t evaluated = 0;
  std::int64_t fitting = 0;  // that keep to all constraints
  // Candidates by what refuses them first: a field ("strategy.tensor_parallel"), or a constraint ("memory",
  // "slowest_step", ...). looked_at = fitting + sum of these; looked_at - legal = those of fields.
  std::map<std::string, std::int64_t> refused;
  // The best by each objective, best first: ties go to the faster, then to the smaller number.
  EnumArray<Objective, std::vector<Candidate>> best;
  // No other is as good in time, memory, money and energy and better in one. Sorted by time; exact.
  std::vector<Candidate> front;
  // Some of the legal candidates, fitting or not, drawn evenly for a scatter plot. Sorted by number.
  std::vector<Candidate> points;
  // The legal ones that come nearest where nothing fits: the smallest and the fastest.
  std::optional<Candidate> smallest, fastest;
  double seconds = 0;  // wall clock; of merged results, the sum
};

struct SearchOptions {
  int threads = 1;
  std::size_t most_kept = 100;     // of each objective
  std::size_t most_points = 2000;  // of the scatter
  std::int64_t begin = 0;          // range of candidates
  std::optional<std::int64_t> end = {};
  // Called now and then, by the thread that called search(), with what was found so far; `done` counts
  // candidates.
  std::function<void(const SearchResult& so_far, std::int64_t done, std::int64_t total)> on_progress = {};
  Seconds progress_every{0.2};
  std::stop_token stop = {};
  // What searches of any space have found about schedules; this search adds to it. Null: it starts anew.
  std::shared_ptr<Schedules> schedules = {};
};

// Throws std::invalid_argument with the first of problems(space) or problems(constraints).
SearchResult search(const SearchSpace& space, const Constraints& constraints, const Tariff& tariff,
                    const Calibration* calibration, const SearchOptions& options = {});

// How many candidates in a row divide layers alike. They have most in common, so a search is quickest in
// ranges that begin and end at a multiple of this number.
std::int64_t candidates_of_layout(const SearchSpace& space);

// Joins results of different ranges of one space under the same constraints, tariff and options.
void merge(SearchResult& into, const SearchResult& other, const SearchOptions& options = {});

}  // namespace sim
