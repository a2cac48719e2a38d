// Runs requests through a scheduler, step by step: the price of each step moves the clock.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/cost/iteration.h"
#include "sim/serving/scheduler.h"

namespace sim {

struct Arrival {
  Seconds at;
  ServedRequest request;
};

// Requests at random times (exponential gaps) of the given mean rate, all alike.
std::vector<Arrival> poisson_arrivals(double per_second, Seconds duration, const ServedRequest& request,
                                      std::uint64_t seed);

struct RequestTimes {
  Seconds arrived, first_token, finished;
  std::int64_t output = 0;
  Seconds ttft() const { return first_token - arrived; }
  Seconds latency() const { return finished - arrived; }
  // Mean time of a token after the first; 0 where there is only one token.
  Seconds tpot() const;
};

struct OccupancyPoint {
  Seconds time;
  std::int64_t used_blocks = 0, running = 0, waiting = 0;
};

struct Simulation {
  std::vector<RequestTimes> requests;  // in the order of arrival
  Seconds duration;                    // until the last has ended
  CostBreakdown busy;                  // sum over the steps
  std::int64_t steps = 0, preemptions = 0, output_tokens = 0;
  double mean_in_system = 0;              // mean number of requests that wait or run, over time
  std::vector<OccupancyPoint> occupancy;  // at most a few thousand points
  double output_per_second() const;
};

using IterationPrice = std::function<CostBreakdown(const Iteration&)>;

struct Traffic {
  std::vector<Arrival> arrivals;  // by time
  // Above 0: at most so many requests are in the system at a time; later arrivals enter as those end.
  std::int64_t most_at_a_time = 0;
};

Simulation simulate(const Traffic& traffic, const SchedulerLimits& limits, const IterationPrice& price);

// The value below which `share` (0 to 1) of the values lies: 0.5 gives the median. 0 where there are none.
Seconds percentile(std::vector<Seconds> values, double share);
// Requests per second of the whole duration whose TTFT and TPOT are at most the given ones.
double goodput(const Simulation& simulation, Seconds most_ttft, Seconds most_tpot);

}  // namespace sim
