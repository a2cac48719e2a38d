#include "app/cli/run_cost.h"

#include <fmt/format.h>

#include <CLI/App.hpp>

#include "app/cli/exit_code.h"
#include "sim/economics/run_cost.h"
#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::cli {

namespace {

sim::Site site_of(const sim::EconomicRates& rates, const std::string& name) {
  if (name.empty()) return rates.sites.front();
  if (const sim::Site* site = rates.site(name)) return *site;
  std::string known;
  for (const sim::Site& site : rates.sites) known += (known.empty() ? "" : ", ") + site.name;
  throw UsageError("--site \"" + name + "\" is not in presets/economics.json; there are: " + known);
}

// The rate that the money was computed with, to be shown beside it.
struct Rate {
  double usd_per_hour = 0;
  std::string said;
};

std::optional<Rate> rate_of(const sim::EconomicRates& rates, const sim::Hardware& hardware,
                            const RunCostFlags& flags) {
  if (flags.usd_per_hour) return Rate{*flags.usd_per_hour, "as given"};
  const sim::HourlyPrice* price = rates.price_of(hardware.name);
  if (price == nullptr) return std::nullopt;
  return Rate{price->usd(), fmt::format("{} market, {}", price->market, price->date)};
}

std::string dollars(double usd) {
  return usd >= 1e6 ? fmt::format("${:.2f} million", usd / 1e6) : fmt::format("${:.2f}", usd);
}

Metric money(std::string key, std::string label, double usd, const Rate& rate) {
  return {std::move(key), std::move(label), usd,
          fmt::format("{} (${:.2f} a device hour: {})", dollars(usd), rate.usd_per_hour, rate.said)};
}

std::vector<Metric> training_metrics(const sim::Report& report, const RunCostFlags& flags,
                                     const sim::EconomicRates& rates, const std::optional<Rate>& rate) {
  const sim::Hardware& hardware = report.source.scenario.hardware;
  const double devices = report.source.scenario.strategy.devices();
  const sim::Reliability reliability;
  const sim::Seconds interval = sim::best_checkpoint_interval(reliability, devices);
  const sim::RunPlan run{.tokens = static_cast<double>(*flags.tokens),
                         .tokens_per_second = sim::tokens_per_second(report),
                         .devices = devices,
                         .power_w = hardware.power_w,
                         .usd_per_device_hour = rate ? rate->usd_per_hour : 0,
                         .site = site_of(rates, flags.site),
                         .goodput = sim::goodput(reliability, devices, interval)};
  if (!(run.tokens_per_second > 0) || !(run.goodput > 0)) return {};
  const sim::RunCost cost = sim::cost_of_run(run);
  std::vector<Metric> metrics;
  const std::string label = fmt::format("run of {} tokens", sim::format_short(run.tokens));
  metrics.push_back({"run_days", label, cost.days, fmt::format("{:.1f} days", cost.days)});
  metrics.push_back(
      {"run_device_hours", "  device hours", cost.device_hours, sim::format_short(cost.device_hours)});
  if (rate) metrics.push_back(money("run_usd", "  money", cost.usd, *rate));
  if (hardware.power_w > 0) {
    metrics.push_back({"run_mwh", "  energy", cost.mwh,
                       fmt::format("{:.3g} MWh (site \"{}\": PUE {}, rated power)", cost.mwh, run.site.name,
                                   run.site.pue)});
    metrics.push_back(
        {"run_tonnes_co2e", "  carbon", cost.tonnes_co2e,
         fmt::format("{:.3g} t CO2e ({} kg a kWh)", cost.tonnes_co2e, run.site.kg_co2e_per_kwh)});
  }
  metrics.push_back({"run_goodput", "  time that is progress", run.goodput,
                     fmt::format("{} with a checkpoint every {}", sim::format_percent(run.goodput),
                                 sim::format(interval))});
  return metrics;
}

}  // namespace

void RunCostFlags::add_to(CLI::App& command) {
  add_count(command, "--tokens", tokens, "cost of a whole training run of this many tokens");
  command
      .add_option("--usd-per-hour", usd_per_hour, "price of one device, instead of presets/economics.json")
      ->check(CLI::NonNegativeNumber)
      ->type_name("USD");
  command.add_option("--site", site, "where it runs: its PUE and grid in presets/economics.json")
      ->type_name("NAME");
}

DeviceRates device_rates(const sim::Hardware& hardware, const RunCostFlags& flags) {
  const sim::EconomicRates rates = sim::load_economic_rates();
  const sim::Site site = site_of(rates, flags.site);
  DeviceRates found;
  if (const std::optional<Rate> rate = rate_of(rates, hardware, flags)) {
    found.usd_per_hour = rate->usd_per_hour;
    found.price = rate->said;
  }
  if (hardware.power_w > 0) found.watts = (hardware.power_w + site.host_w_per_device) * site.pue;
  found.site = site.name;
  found.kg_co2e_per_kwh = site.kg_co2e_per_kwh;
  return found;
}

std::vector<Metric> token_cost_metrics(const sim::Hardware& hardware, double devices,
                                       double tokens_per_second, const RunCostFlags& flags) {
  if (!(tokens_per_second > 0)) return {};
  const DeviceRates rates = device_rates(hardware, flags);
  std::vector<Metric> metrics;
  if (!rates.price.empty())
    metrics.push_back(money("usd_per_million_tokens", "money per million tokens",
                            sim::usd_per_million_tokens(rates.usd_per_hour, devices, tokens_per_second),
                            {rates.usd_per_hour, rates.price}));
  if (rates.watts > 0) {
    const double kwh = sim::kwh_per_million_tokens(rates.watts, devices, tokens_per_second);
    const double kg = kwh * rates.kg_co2e_per_kwh;
    metrics.push_back({"kwh_per_million_tokens", "energy per million tokens", kwh,
                       fmt::format("{:.3g} kWh (site \"{}\", rated power)", kwh, rates.site)});
    metrics.push_back({"kg_co2e_per_million_tokens", "carbon per million tokens", kg,
                       fmt::format("{:.3g} kg CO2e ({} kg a kWh)", kg, rates.kg_co2e_per_kwh)});
  }
  return metrics;
}

std::vector<Metric> run_cost_metrics(const sim::Report& report, const RunCostFlags& flags) {
  const sim::Scenario& scenario = report.source.scenario;
  const bool training = scenario.workload.task == sim::Task::train;
  if (flags.tokens && !training) throw UsageError("--tokens is of a training run, and the task is generate");
  if (training && !flags.tokens) return {};
  if (!training)
    return token_cost_metrics(scenario.hardware, scenario.strategy.devices(), sim::tokens_per_second(report),
                              flags);
  const sim::EconomicRates rates = sim::load_economic_rates();
  return training_metrics(report, flags, rates, rate_of(rates, scenario.hardware, flags));
}

}  // namespace app::cli
