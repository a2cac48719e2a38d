#include "sim/cost/stragglers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sim {
namespace {

// The standard normal quantile for p from 0.5 up to 1, by Newton's method on the share above it.
double normal_quantile(double p) {
  const double above = 1 - p;
  double x = 0;
  // From the left of the root the steps on this convex function never overshoot. So they stop by themselves
  // when rounding leaves no step to the right.
  while (true) {
    const double excess = std::erfc(x / std::numbers::sqrt2) / 2 - above;
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    const double next = x + excess / density;
    if (!(next > x)) return x;
    x = next;
  }
}

}  // namespace

double expected_maximum(std::int64_t n) {
  if (n <= 1) return 0;
  const double ranks = static_cast<double>(n);
  return normal_quantile((ranks - 0.375) / (ranks + 0.25));
}

double waiting_over_mean(const Scenario& scenario, const Hardware& hardware) {
  const Strategy& s = scenario.strategy;
  const Workload& w = scenario.workload;
  const std::int64_t ranks = s.devices();
  if (w.task != Task::train || ranks <= 1) return 0;
  double share = 0;
  if (hardware.device_spread > 0) {
    const std::int64_t of_node = std::min<std::int64_t>(ranks, hardware.devices_per_node);
    share += hardware.device_spread * (expected_maximum(ranks) - expected_maximum(of_node));
  }
  if (hardware.pass_jitter > 0) {
    const double micro_batches = static_cast<double>(w.global_batch_size) /
                                 (static_cast<double>(w.micro_batch_size) * s.data_parallel);
    share +=
        hardware.pass_jitter * (expected_maximum(ranks / s.data_parallel) +
                                expected_maximum(s.data_parallel) / std::sqrt(std::max(1.0, micro_batches)));
  }
  return share;
}

}  // namespace sim
