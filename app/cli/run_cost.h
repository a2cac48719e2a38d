// What a whole training run, or a million generated tokens, would cost at a predicted rate: flags and totals.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/report_output.h"

namespace app::cli {

struct RunCostFlags {
  std::optional<std::int64_t> tokens;  // of the whole run
  std::optional<double> usd_per_hour;  // of one device; else the price in presets/economics.json
  std::string site;                    // a site in presets/economics.json; empty: the first

  void add_to(CLI::App& command);
};

// A running device's cost and power, by the same flags.
struct DeviceRates {
  double usd_per_hour = 0;
  std::string price;  // where the money is from; empty: no price is known
  double watts = 0;   // (device + its share of the node) x PUE; 0: the hardware says no power
  std::string site;
  double kg_co2e_per_kwh = 0;
};
// Throws UsageError naming the flag.
DeviceRates device_rates(const sim::Hardware& hardware, const RunCostFlags& flags);

// For training with --tokens: device hours, days, money, energy, carbon, share of time that is progress. For
// generation: token_cost_metrics() at its rate. Throws UsageError naming the flag.
std::vector<Metric> run_cost_metrics(const sim::Report& report, const RunCostFlags& flags);

// Money, energy and carbon of a million generated tokens. Money needs a known price, the others need the
// hardware's power. `tokens_per_second` is that of all `devices` together. Throws UsageError naming the
// flag.
std::vector<Metric> token_cost_metrics(const sim::Hardware& hardware, double devices,
                                       double tokens_per_second, const RunCostFlags& flags);

}  // namespace app::cli
