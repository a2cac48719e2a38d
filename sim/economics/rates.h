// What accelerator hours cost in money, energy and carbon: dated, editable data (presets/economics.json), for
// prices differ by up to an order of magnitude between providers and change every month.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sim {

// The rent of one accelerator for an hour, in US dollars.
struct HourlyPrice {
  std::string hardware;  // preset's name
  std::string market;    // hyperscaler, specialised, marketplace
  double usd_low = 0, usd_high = 0;
  std::string date;  // of the quotation: 2026-05
  std::string source;

  double usd() const { return (usd_low + usd_high) / 2; }
};

// Where a run draws its power.
struct Site {
  std::string name;
  double pue = 1;                // power of the whole site over that of its computers, at least 1
  double kg_co2e_per_kwh = 0;    // of the grid
  double host_w_per_device = 0;  // CPUs, adapters, fans: what a node draws beside its accelerators, shared
  std::string source;
};

struct EconomicRates {
  std::vector<HourlyPrice> prices;
  std::vector<Site> sites;  // the first is the default

  // The specialised market's price where it is quoted, else the first quotation; null where there is none.
  const HourlyPrice* price_of(std::string_view hardware) const;
  const Site* site(std::string_view name) const;
};

// Reads presets/economics.json. Throws PresetError.
EconomicRates load_economic_rates();
EconomicRates economic_rates_from_json(std::string_view json, const std::string& file);

}  // namespace sim
