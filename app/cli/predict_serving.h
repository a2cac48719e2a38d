// ridgepoint predict for inference engines: a batch of known size, or traffic.
#pragma once
#include <cstdint>
#include <optional>

#include "app/cli/exit_code.h"
#include "app/cli/flags.h"
#include "app/cli/run_cost.h"
#include "app/cli/scenario_flags.h"

namespace app::cli {

struct ServingFlags {
  std::optional<double> requests_per_second;
  std::optional<std::int64_t> concurrency;
  bool saturated = false;
  double minutes = 10;  // of traffic
  std::int64_t seed = 0;
  std::optional<double> most_ttft_ms, most_tpot_ms;  // objective

  void add_to(CLI::App& command);
  bool traffic() const { return requests_per_second || concurrency || saturated; }
};

// Writes times, memory, and the cost of a million tokens. Returns ExitCode::constraint, after writing, where
// the batch does not fit. Throws UsageError naming the flag; ConstraintError where traffic has no room for a
// request.
ExitCode predict_serving(const ResolvedScenario& resolved, const ServingFlags& flags,
                         const RunCostFlags& costs, Format format);

}  // namespace app::cli
