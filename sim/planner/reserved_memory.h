// Memory of a training step where a caching allocator hands it out: what it reserves beyond the live follows
// from the order of requests, and no closed form knows that order.
#pragma once
#include "sim/plan/plan.h"
#include "sim/units.h"

namespace sim {

// The fullest stage's, as peak_memory() of predict()'s report: every stage's requests are replayed, of all
// micro-batches. None can be left out: where backward passes come in two parts free segments drift from
// micro-batch to micro-batch, and the stage with most that is live is often not that with most reserved.
// Takes about 20 us a stage and micro-batch where the live peak takes 100 ns: for single scenarios and for
// those that a search keeps, not for all that it looks at.
Bytes reserved_memory(const Plan& plan);

}  // namespace sim
