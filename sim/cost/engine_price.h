// The price of a generation's operation as an inference engine carries it out: the tables of the GPU for the
// engine's kernels, and the profile's (scenario/serving_implementation.h) counts of small kernels and gaps.
#pragma once
#include "sim/cost/price.h"

namespace sim {

// Whether the scenario is a generation by an inference engine that has a serving profile.
bool is_served(const Scenario& scenario);

// The kinds of cost that an iteration's time is made of.
enum class CostKind { products, attention, small_kernels, collectives, host };
CostKind cost_kind(OpKind kind);

// Relative error of the fixed times of small kernels and of the host's work. These times are estimates from
// sources about the engines, not measurements.
inline constexpr double kEstimateError = 0.5;

// The price of an operation of `block`, `work` being work_of() it. Attention of one query a sequence is a
// decode step's; of more queries, a prompt's. `group` is the operation's where it is a collective.
Price price_of_engine(const Plan& plan, const Block& block, const Operation& op, const Variables& v,
                      const Work& work, const Hardware& hardware, const Calibration* calibration,
                      const Group* group);

}  // namespace sim
