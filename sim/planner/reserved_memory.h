// Memory of a training step where a caching allocator hands it out: what it reserves beyond the live follows
// from the order of requests, and no closed form knows that order.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/units.h"

namespace sim {

// Of the fullest of these stages, as peak_memory() of predict()'s report: their requests are replayed. Takes
// about a millisecond a stage where the live peak takes 100 ns: for single scenarios and for those that a
// search keeps, not for all that it looks at.
Bytes reserved_memory(const Scenario& scenario, const std::vector<std::int32_t>& stages);

}  // namespace sim
