// One search of ridgepoint plan, of training strategies or of ways to serve, as the flags ask for it: its
// space, its constraints, and how a range of it is searched.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "app/cli/plan_flags.h"
#include "app/cli/plan_sweep.h"
#include "runtime/spread_work.h"

namespace app::cli {

struct TrainingSearch {
  sim::SearchSpace space;
  sim::Constraints constraints;
  sim::Objective objective = sim::Objective::time;
};

struct ServingSearch {
  sim::ServingSpace space;
  std::optional<sim::ServingTraffic> traffic;
  sim::ServingConstraints constraints;
  sim::ServingObjective objective = sim::ServingObjective::throughput;
};

struct PlanSearch {
  Variation variation;  // the variation of a sweep
  ScenarioFlags typed;  // the flags, with the variation applied
  sim::Scenario base;
  std::optional<sim::Calibration> calibration;
  DeviceRates rates;
  // Empty where the variation gives no legal scenario; why_not then says what contradicts itself.
  std::variant<std::monostate, TrainingSearch, ServingSearch> of;
  std::string why_not;

  sim::Tariff tariff() const { return {rates.usd_per_hour, rates.watts}; }
};

// Throws UsageError. Throws ConstraintError too, but only without a variation.
PlanSearch make_search(const PlanFlags& flags, const Variation& variation, const runtime::EventSink& sink,
                       const std::stop_token& stop);

std::int64_t candidates(const PlanSearch& search);

// One line with everything on which the results of a range depend.
std::string description(const PlanSearch& search, std::int64_t most_kept);

struct RangeOptions {
  int threads = 1;
  std::size_t most_kept = 10;
  std::stop_token stop = {};
  std::function<void(std::int64_t done)> on_progress = {};
  std::shared_ptr<sim::Schedules> schedules = {};  // kept from range to range
};
// Searches a range; the result is a line of JSON.
runtime::PieceResult search_range(const PlanSearch& search, std::int64_t begin, std::int64_t end,
                                  const RangeOptions& options);

using PlanFound = std::variant<std::monostate, sim::SearchResult, sim::ServingResult>;
// Adds what search_range() wrote.
// `where` is how a message names the range. Throws sim::PresetError where it is no result of a search.
void merge(const PlanSearch& search, PlanFound& into, const std::string& range, std::size_t most_kept,
           const std::string& where);

// For searches in which nothing fits: a sentence that names the constraint and the nearest value that would
// do. May search again with weaker constraints, and on more devices.
std::string nearest_that_would_do(const PlanSearch& search, const PlanFound& found, const PlanFlags& flags,
                                  const RangeOptions& options);

// Whether any candidate keeps to all constraints.
bool any_fits(const PlanFound& found);

}  // namespace app::cli
