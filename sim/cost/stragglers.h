// How long ranks of a job wait for the slowest: ranks are not alike, and a step ends with the slowest one.
//
// Devices differ steadily (Hardware::device_spread), passes of a device vary (Hardware::pass_jitter). Both
// are taken as normal. The slowest of n lies about expected_maximum(n) standard deviations above the mean.
//
// Prices already hold the wait for the slowest device of a node: collectives are calibrated over all devices
// of a node, and sustained clocks on nodes that train. So device spread adds no wait to a job within a node.
// A job of N devices waits longer by as much as the slowest of N is slower than the slowest of a node. Jitter
// is relative to the mean pass. Memory clocks hardly differ (Sinha et al. 2022, arXiv 2208.11035), so
// generation, which streams through memory, is not slowed.
#pragma once
#include <cstdint>

#include "sim/scenario/scenario.h"
#include "sim/units.h"

namespace sim {

// Mean of the largest of n numbers from the standard normal distribution, 0 for one: Blom's approximation
// ("Statistical estimates and transformed beta-variables", 1958), the quantile at (n - 3/8) / (n + 1/4),
// which is at most 5 % off, and less for many.
double expected_maximum(std::int64_t n);

// The time that ranks wait for the slowest in a training step, as a share of the step of mean ranks. 0 for
// one rank and outside training; never less with more ranks. Ranks of a replica wait for each other in every
// micro-batch, replicas once a step, when the jitter of a replica's passes has evened out.
double waiting_over_mean(const Scenario& scenario, const Hardware& hardware);

}  // namespace sim
