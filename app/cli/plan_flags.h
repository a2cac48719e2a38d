// The flags of ridgepoint plan beside those of a scenario: what is searched, and which constraints hold.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/run_cost.h"
#include "app/cli/scenario_flags.h"
#include "sim/planner/search.h"
#include "sim/planner/serving_search.h"

namespace app::cli {

struct PlanFlags {
  ScenarioFlags scenario;
  RunCostFlags run;
  std::vector<std::string> search;  // FIELD=v1,v2,...

  double memory_share = 1, memory_reserved_gib = 0;
  std::optional<double> slowest_step_s, least_tokens_per_s, most_usd_per_mtok, most_kwh_per_mtok;
  std::optional<double> most_ttft_ms, most_tpot_ms, requests_per_second;
  double minutes = 2;  // of traffic
  std::int64_t traffic_seed = 0;

  std::string objective;  // empty: time in training, throughput in serving
  std::int64_t top = 10;
  std::int64_t threads = 0;  // 0: all that this process may use
  std::string sweep, journal;
  bool resume = false;
  std::int64_t range = 0;  // candidates handed out at a time; 0: chosen
  Format format = Format::text;

  void add_to(CLI::App& command);
};

// Each throws UsageError naming the flag and what would be accepted.
sim::Objective training_objective(const PlanFlags& flags);
sim::ServingObjective serving_objective(const PlanFlags& flags);
sim::Constraints training_constraints(const PlanFlags& flags);
sim::ServingConstraints serving_constraints(const PlanFlags& flags);

// All strategies, except in fields that a flag fixes. --search widens or narrows fields to its values.
// `base` has the model, hardware, implementation and workload of the flags.
sim::SearchSpace training_space(const sim::Scenario& base, const PlanFlags& flags);
sim::ServingSpace serving_space(const sim::Scenario& base, const PlanFlags& flags);

// The scenario of the flags without the searched fields: degrees are 1, the batch is the flags' alone. Where
// nothing sets the sequences of a step, they have about 4 million tokens together.
ResolvedScenario resolve_for_plan(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                  std::stop_token stop);

}  // namespace app::cli
