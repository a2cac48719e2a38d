#include "app/gui/widgets/numbers.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "sim/byte_units.h"
#include "sim/format.h"

namespace app::gui {
namespace {

std::string printed(const char* pattern, double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

template <std::size_t N>
ScaleUnit largest_within(double greatest, const std::array<ScaleUnit, N>& ascending) {
  ScaleUnit unit = ascending.front();
  for (const ScaleUnit& larger : ascending)
    if (greatest >= larger.size) unit = larger;
  return unit;
}

}  // namespace

std::string ScaleUnit::digits(double base) const {
  const double value = base / size, magnitude = std::abs(value);
  if (magnitude >= 999.5) return sim::format_count(std::llround(value));
  if (magnitude >= 99.95) return printed("%.0f", value);
  if (magnitude >= 9.995) return printed("%.1f", value);
  if (magnitude > 0 && magnitude < 0.005) return "< 0.01";
  return printed(magnitude > 0 ? "%.2f" : "%.0f", value);
}

std::string significant(double value, int digits) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*g", digits, value);
  return buffer.data();
}

std::string ScaleUnit::text(double base) const {
  return digits(base) + " " + name;
}

ScaleUnit byte_unit(double greatest) {
  // Plots begin at the thousand.
  const sim::ByteScale& scale = sim::byte_scale();
  const sim::ByteUnit* unit = &scale[1];
  for (const sim::ByteUnit& larger : scale)
    if (larger.size > unit->size && greatest >= larger.size) unit = &larger;
  return {unit->size, unit->name};
}

ScaleUnit time_unit(double greatest) {
  return largest_within(greatest, std::array<ScaleUnit, 3>{{{1e-6, "\u00b5s"}, {1e-3, "ms"}, {1, "s"}}});
}

ScaleUnit flop_rate_unit(double greatest) {
  return largest_within(greatest,
                        std::array<ScaleUnit, 3>{{{1e6, "MFLOP/s"}, {1e9, "GFLOP/s"}, {1e12, "TFLOP/s"}}});
}

std::string tick_label(double value) {
  constexpr double kMillion = 1e6, kBillion = 1e9, kTrillion = 1e12;
  if (std::abs(value) >= kTrillion) return printed("%.4gT", value / kTrillion);
  if (std::abs(value) >= kBillion) return printed("%.4gB", value / kBillion);
  if (std::abs(value) >= kMillion) return printed("%.4gM", value / kMillion);
  if (std::abs(value) >= 1000) return sim::format_count(std::llround(value));
  return printed("%.4g", value);
}

std::string signed_percent(double fraction) {
  const std::string size = sim::format_percent(std::abs(fraction));
  if (size == sim::format_percent(0)) return size;
  return (fraction < 0 ? "\u2212" : "+") + size;
}

std::string token_rate_digits(double tokens_per_second) {
  return tokens_per_second < 100 ? printed("%.1f", tokens_per_second)
                                 : sim::format_count(std::llround(tokens_per_second));
}

std::string token_rate(double tokens_per_second) {
  return token_rate_digits(tokens_per_second) + " tokens/s";
}

}  // namespace app::gui
