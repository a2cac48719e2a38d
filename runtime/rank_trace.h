// When each action of the last section ran on every rank, on one clock.
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

// Every rank calls it; rank 0 gets the actions of all, rank by rank in the order in which they ran, the
// others nothing. Clocks are aligned by messages to and from rank 0: the quickest of several tells what its
// clock says in the middle of it (Cristian 1989), to half of what that message took.
std::vector<TracedAction> gather_trace(Run& run);

// The same as events, one for each rank of `ranks`.
std::vector<sim::RankTimelineEvent> rank_timelines(const sim::Plan& plan,
                                                   const std::vector<TracedAction>& actions,
                                                   std::int64_t step);

// For Perfetto and chrome://tracing: a process for each rank, a track in it for each stream that it uses.
std::string to_chrome_trace(const sim::Plan& plan, const std::vector<TracedAction>& actions);

}  // namespace runtime
