#include "sim/economics/rates.h"

#include <algorithm>

#include "sim/json_object.h"
#include "sim/scenario/preset.h"

namespace sim {
namespace {

constexpr std::string_view kUsualMarket = "specialised";

double at_least(JsonObject& object, std::string_view key, double least) {
  const double value = object.number(key);
  if (!(value >= least)) object.fail(key, "must be at least " + std::to_string(least));
  return value;
}

HourlyPrice price_from(JsonObject object) {
  HourlyPrice price{.hardware = object.text("hardware"),
                    .market = object.text("market"),
                    .usd_low = at_least(object, "low_usd_per_hour", 0),
                    .usd_high = 0,
                    .date = object.text("date"),
                    .source = object.text("source")};
  price.usd_high = at_least(object, "high_usd_per_hour", price.usd_low);
  object.finish();
  return price;
}

Site site_from(JsonObject object) {
  Site site{.name = object.text("name"),
            .pue = at_least(object, "pue", 1),
            .kg_co2e_per_kwh = at_least(object, "kg_co2e_per_kwh", 0),
            .host_w_per_device = at_least(object, "host_w_per_device", 0),
            .source = object.text("source")};
  object.finish();
  return site;
}

}  // namespace

const HourlyPrice* EconomicRates::price_of(std::string_view hardware) const {
  const HourlyPrice* first = nullptr;
  for (const HourlyPrice& price : prices) {
    if (price.hardware != hardware) continue;
    if (price.market == kUsualMarket) return &price;
    if (first == nullptr) first = &price;
  }
  return first;
}

const Site* EconomicRates::site(std::string_view name) const {
  const auto found = std::ranges::find(sites, name, &Site::name);
  return found == sites.end() ? nullptr : &*found;
}

EconomicRates economic_rates_from_json(std::string_view json, const std::string& file) {
  const Json parsed = parse_json(json, file);
  JsonObject all(parsed, file);
  EconomicRates rates;
  for (JsonObject& object : all.objects("prices")) rates.prices.push_back(price_from(object));
  for (JsonObject& object : all.objects("sites")) rates.sites.push_back(site_from(object));
  if (rates.sites.empty()) all.fail("sites", "must name at least one site");
  all.finish();
  return rates;
}

EconomicRates load_economic_rates() {
  const std::filesystem::path path = preset_directory() / "economics.json";
  return economic_rates_from_json(preset_text(path), path.string());
}

}  // namespace sim
