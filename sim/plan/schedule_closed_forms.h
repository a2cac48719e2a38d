// What the papers say of the schedules with equal stages and no transfers. Schedules are those of schedule.h.
#pragma once
#include <optional>
#include <string_view>

#include "sim/units.h"

namespace sim {

// Durations of a stage's passes over one chunk.
struct PassTimes {
  Seconds forward, backward_input, backward_weight;
};

// Idle time, between its first pass and its last, of the stage that waits longest; `stage` is of all its
// chunks. Empty where no formula is exact:
//   gpipe, 1f1b    (p - 1)(F + B + W)
//   interleaved    (p - 1)(F + B + W) / v
//   breadth-first  the same, of p micro-batches or more (arXiv 2211.05953, section 3.2)
//   zb-h1          (p - 1)(F + B - W)
//   zb-h2          (p - 1)(F + B - 2W), where that is not negative and there are 2p - 1 micro-batches or more
//   zb-v           0, where F = B = W and there are 2p - 1 micro-batches or more
//   dualpipe       (p / 2 - 1)(F + 2B - W), where F = B = W
//   dualpipev      (p - 1)(F + 2B - W) / 2, where F = B = W
// Those up to zb-v: arXiv 2401.10241, table 2 and section 6, of p micro-batches or more where backward
// is split. The others: the table of github.com/deepseek-ai/DualPipe, with a forward and a backward pass
// together as long as both in turn.
std::optional<Seconds> closed_form_bubble(std::string_view schedule, std::int32_t stages, std::int32_t chunks,
                                          std::int32_t micro_batches, const PassTimes& stage);

}  // namespace sim
