// A whole training run: accelerator hours, days, money, energy and carbon.
#pragma once
#include "sim/economics/rates.h"
#include "sim/units.h"

namespace sim {

// Failures of a large run and what they cost.
struct Reliability {
  // Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 H100 (arXiv 2407.21783, section 3.3.4).
  double device_hours_per_failure = 54.0 * 24 * 16384 / 419;
  // Both times are assumed. They give more than 90 % of effective time, which Llama 3 reports there.
  Seconds checkpoint{10};  // training waits so long for a checkpoint to be written
  Seconds restart{300};    // from a failure until training goes on
};

Seconds mean_time_between_failures(const Reliability& r, double devices);
// The interval that loses least, to first order: sqrt(2 checkpoint x MTBF) (Young 1974, CACM 17 (9)).
Seconds best_checkpoint_interval(const Reliability& r, double devices);
// The share of time that becomes progress: 1 less checkpoints, work done twice and restarts; at least 0.
//   1 - checkpoint / interval - (interval / 2 + restart) / MTBF
double goodput(const Reliability& r, double devices, Seconds interval);

struct RunPlan {
  double tokens = 0;             // of the whole run
  double tokens_per_second = 0;  // of all devices together, while nothing fails
  double devices = 1;
  double power_w = 0;  // of one device, as drawn on average; its rated power is what model cards use
  double usd_per_device_hour = 0;
  Site site{};
  double goodput = 1;  // above 0
};

struct RunCost {
  double device_hours = 0, days = 0, usd = 0, mwh = 0, tonnes_co2e = 0;
};
RunCost cost_of_run(const RunPlan& run);
// The cost of device hours that are given, not computed from the run's tokens and rate.
RunCost cost_of_hours(double device_hours, const RunPlan& run);

// US dollars for a million tokens at a steady rate.
double usd_per_million_tokens(double usd_per_device_hour, double devices, double tokens_per_second);
// kWh for a million tokens. `watts` is a device's power with its share of the node, times the site's PUE.
double kwh_per_million_tokens(double watts, double devices, double tokens_per_second);

}  // namespace sim
