// When each action and each operation of the last section ran on every rank, on one clock.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/run.h"
#include "sim/report/events.h"

namespace runtime {

struct TracedAction {
  std::int32_t rank = 0;
  std::size_t action = 0;     // of its stage's program
  double start = 0, end = 0;  // seconds since the first action of all began
};

struct TracedOperation {
  std::int32_t rank = 0;
  std::size_t action = 0, operation = 0;
  double start = 0, end = 0;
};

// Every rank calls it; rank 0 gets the operations of all, rank by rank in the order in which they ran, the
// others nothing. Clocks are aligned by round trips to rank 0: the quickest of several gives the difference,
// as if the other clock was read in its middle, to within half of its time (Cristian 1989).
std::vector<TracedOperation> gather_trace(Run& run);
std::vector<TracedAction> actions_of(const std::vector<TracedOperation>& operations);

// The same as events, one for each rank of `ranks`.
std::vector<sim::RankTimelineEvent> rank_timelines(const sim::Plan& plan,
                                                   const std::vector<TracedAction>& actions,
                                                   std::int64_t step);

// The same, operation by operation; `duration` is the step's. A rank that ran more than `most` tells nothing.
std::vector<sim::OperationTimelineEvent> operation_timelines(const sim::Plan& plan,
                                                             const std::vector<TracedOperation>& operations,
                                                             std::int64_t step, sim::Seconds duration,
                                                             std::size_t most = 20'000);

// For Perfetto and chrome://tracing: a process for each rank, a track in it for each stream that it uses.
std::string to_chrome_trace(const sim::Plan& plan, const std::vector<TracedAction>& actions);

}  // namespace runtime
