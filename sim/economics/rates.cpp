#include "sim/economics/rates.h"

#include <algorithm>

#include "sim/scenario/listed_fields.h"
#include "sim/scenario/preset.h"

namespace sim {

void fields(auto& v, Like<HourlyPrice> auto& p) {
  needed<&HourlyPrice::hardware, &HourlyPrice::market>(v, p);
  v.needed("low_usd_per_hour", p.usd_low);
  v.needed("high_usd_per_hour", p.usd_high);
  v.require(p.usd_high >= p.usd_low, "high_usd_per_hour", "must be at least low_usd_per_hour");
  needed<&HourlyPrice::date, &HourlyPrice::source>(v, p);
}

void fields(auto& v, Like<Site> auto& s) {
  using P = Site;
  needed<&P::name, &P::pue, &P::kg_co2e_per_kwh, &P::host_w_per_device, &P::source>(v, s);
  v.require(s.pue >= 1, "pue", "must be 1 or more");
}

void fields(auto& v, Like<EconomicRates> auto& r) {
  needed<&EconomicRates::prices, &EconomicRates::sites>(v, r);
  v.require(!r.sites.empty(), "sites", "must name at least one site");
}

const HourlyPrice* EconomicRates::price_of(std::string_view hardware) const {
  constexpr std::string_view kUsualMarket = "specialised";
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
  return struct_from_text<EconomicRates>(json, file, kNotNegative);
}

EconomicRates load_economic_rates() {
  const std::filesystem::path path = preset_directory() / "economics.json";
  return economic_rates_from_json(preset_text(path), path.string());
}

}  // namespace sim
