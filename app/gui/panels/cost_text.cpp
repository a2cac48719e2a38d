#include "app/gui/panels/cost_text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "app/gui/panels/plan_limits.h"
#include "app/gui/widgets/numbers.h"
#include "sim/format.h"

namespace app::gui {
namespace {

// In the largest of the units of which it is at least one, each a thousand of the one before.
std::string in_thousands(double value, std::array<const char*, 4> units) {
  std::size_t unit = 0;
  for (; unit + 1 < units.size() && value >= 1000; ++unit) value /= 1000;
  return fmt::format("{} {}", significant(value), units[unit]);
}

}  // namespace

std::string dollars(double usd) {
  if (usd >= 1e6) return fmt::format("${:.3g} million", usd / 1e6);
  if (usd >= 1e3) return fmt::format("${}", sim::format_count(std::llround(usd)));
  return fmt::format("${}", dollar_digits(usd));
}

std::string days_text(double days) {
  constexpr double kSecondsADay = 86400;
  if (days < 1) return sim::format(sim::Seconds{days * kSecondsADay});
  return days < 1000 ? fmt::format("{} days", significant(days))
                     : fmt::format("{} thousand days", significant(days / 1000));
}

std::string energy_text(const sim::RunCost& cost) {
  return in_thousands(cost.mwh * 1e6, {"Wh", "kWh", "MWh", "GWh"});
}

std::string carbon_text(const sim::RunCost& cost) {
  return in_thousands(cost.tonnes_co2e * 1e6, {"g CO2e", "kg CO2e", "t CO2e", "kt CO2e"});
}

}  // namespace app::gui
