#include "sim/economics/run_cost.h"

#include <algorithm>
#include <cmath>

namespace sim {
namespace {

constexpr double kSecondsPerHour = 3600, kHoursPerDay = 24;

}  // namespace

Seconds mean_time_between_failures(const Reliability& r, double devices) {
  return {r.device_hours_per_failure * kSecondsPerHour / devices};
}

Seconds best_checkpoint_interval(const Reliability& r, double devices) {
  return {std::sqrt(2 * r.checkpoint.value * mean_time_between_failures(r, devices).value)};
}

double goodput(const Reliability& r, double devices, Seconds interval) {
  const Seconds between = mean_time_between_failures(r, devices);
  const double lost = r.checkpoint / interval + (interval * 0.5 + r.restart) / between;
  return std::max(0.0, 1 - lost);
}

RunCost cost_of_hours(double device_hours, const RunPlan& run) {
  const double watts = (run.power_w + run.site.host_w_per_device) * run.site.pue;
  const double kwh = device_hours * watts / 1e3;
  return {.device_hours = device_hours,
          .days = device_hours / run.devices / kHoursPerDay,
          .usd = device_hours * run.usd_per_device_hour,
          .mwh = kwh / 1e3,
          .tonnes_co2e = kwh * run.site.kg_co2e_per_kwh / 1e3};
}

RunCost cost_of_run(const RunPlan& run) {
  const double hours = run.tokens / run.tokens_per_second / kSecondsPerHour / run.goodput;
  return cost_of_hours(hours * run.devices, run);
}

double usd_per_million_tokens(double usd_per_device_hour, double devices, double tokens_per_second) {
  return usd_per_device_hour * devices / (kSecondsPerHour * tokens_per_second) * 1e6;
}

double kwh_per_million_tokens(double watts, double devices, double tokens_per_second) {
  return usd_per_million_tokens(watts / 1e3, devices, tokens_per_second);  // kWh in place of dollars an hour
}

}  // namespace sim
