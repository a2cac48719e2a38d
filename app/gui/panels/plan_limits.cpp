#include "app/gui/panels/plan_limits.h"

#include <fmt/format.h>

#include "app/gui/widgets/numbers.h"

namespace app::gui {

void limit_slider(const Look& look, const char* words, double& limit, SliderRange range, NoLimit none,
                  std::string (*text)(double), float width) {
  const bool low = none == NoLimit::at_low_end;
  const double any = low ? range.low : range.high;
  double value = limit > 0 ? limit : any;
  const auto is_any = [&] { return low ? value <= any : value >= any; };
  if (slider(look, words, value, range, is_any() ? "any" : text(value), width)) limit = is_any() ? 0 : value;
}

void draw_plan_limits(const Look& look, PlanLimits& limits, const sim::Tariff& tariff, float width) {
  // From one small device to the largest clusters; from the cheapest served model to the dearest trained one.
  limit_slider(
      look, "tokens at least", limits.least_tokens_per_second, {1, 1e9, true}, NoLimit::at_low_end,
      [](double rate) { return token_rate(rate); }, width);
  if (tariff.usd_per_device_hour > 0)
    limit_slider(
        look, "a million tokens cost at most", limits.most_usd_per_million_tokens, {0.001, 1000, true},
        NoLimit::at_high_end, [](double usd) { return fmt::format("${:.3g}", usd); }, width);
  if (tariff.watts_per_device > 0)
    limit_slider(
        look, "a million tokens take at most", limits.most_kwh_per_million_tokens, {0.001, 1000, true},
        NoLimit::at_high_end, [](double kwh) { return fmt::format("{:.3g} kWh", kwh); }, width);
}

std::string dollar_digits(double usd) {
  return usd < 99.95 ? fmt::format("{:#.3g}", usd) : ScaleUnit{1, ""}.digits(usd);
}

}  // namespace app::gui
