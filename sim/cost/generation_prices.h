// Prices of a generation of many tokens: each token's actions are run as price_plan() runs them, but none is
// written down that nobody looks at.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/cost/priced_plan.h"
#include "sim/plan/programs.h"

namespace sim {

struct PricedGeneration {
  std::vector<std::int64_t> counts;  // of uses of shown.blocks, which are those of all tokens
  std::vector<Seconds> first_starts;
  std::vector<Seconds> tokens;  // how long each takes
  Seconds duration, low, high;
  PricedPlan shown;  // of the plan's program: its actions begin and end as among all tokens
};

// `generation.plan` has one program, of the tokens `shown`: from the first on, two at least besides the last.
// Prices and times are those of price_plan() of all tokens, to the bit.
PricedGeneration price_generation(const GenerationPlan& generation, const std::vector<std::int64_t>& shown,
                                  const Hardware& hardware, const Calibration* calibration);

}  // namespace sim
