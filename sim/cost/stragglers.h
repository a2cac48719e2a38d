// Ranks of a job are not alike, and a step ends when the slowest of them has: what the others wait.
//
// Devices differ steadily (Hardware::device_spread), and a device from pass to pass (Hardware::pass_jitter),
// both taken as normal. The slowest of n lies about expected_maximum(n) standard deviations above the mean.
//
// What prices are relative to: collectives are calibrated over all devices of a node, and sustained clocks on
// nodes that train, so that both hold the wait for the slowest device of one node already. A job within a
// node waits no longer than that; one of N devices waits as much longer as the slowest of N is slower than
// the slowest of a node. Jitter is relative to the mean pass. Memory's clock hardly differs (Sinha et al.
// 2022, arXiv 2208.11035): what generation streams is not slowed.
#pragma once
#include <cstdint>

#include "sim/scenario/scenario.h"
#include "sim/units.h"

namespace sim {

// Mean of the largest of n numbers from the standard normal distribution, 0 for one: Blom's approximation
// ("Statistical estimates and transformed beta-variables", 1958), the quantile at (n - 3/8) / (n + 1/4),
// which is at most 5 % off, and less for many.
double expected_maximum(std::int64_t n);

// What ranks wait for the slowest of them in a training step, as a part of the step of mean ranks: 0 where
// there is one rank, and never less with more. Ranks of a replica wait for each other in every micro-batch,
// replicas once a step, when a replica's passes have evened out.
double waiting_over_mean(const Scenario& scenario, const Hardware& hardware);

}  // namespace sim
