#include "app/lesson/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "sim/format.h"

namespace app::lesson {
namespace {

Dimension bytes() {
  return Dimension::of(Dimension::bytes);
}
Dimension seconds() {
  return Dimension::of(Dimension::seconds);
}
Dimension flops() {
  return Dimension::of(Dimension::flops);
}
Dimension tokens() {
  return Dimension::of(Dimension::tokens);
}
Dimension dollars() {
  return Dimension::of(Dimension::dollars);
}
Dimension joules() {
  return Dimension::of(Dimension::joules);
}

// Three significant digits. Numbers from 1,000 on are in full where whole or beyond three digits.
std::string digits(double number) {
  const double size = std::abs(number);
  if (!std::isfinite(number)) return "no number";
  if (size >= 1e6) return sim::format_short(number);
  if (size >= 1000) return sim::format_count(std::llround(number));
  return fmt::format("{:.3g}", number);
}

std::string energy(double in_joules) {
  const double kwh = in_joules / 3.6e6;
  if (kwh >= 1e6) return fmt::format("{} GWh", digits(kwh / 1e6));
  if (kwh >= 1e3) return fmt::format("{} MWh", digits(kwh / 1e3));
  if (kwh >= 1) return fmt::format("{} kWh", digits(kwh));
  return fmt::format("{} J", digits(in_joules));
}

std::string money(double usd) {
  return usd >= 100 || usd == 0 ? fmt::format("${}", digits(std::round(usd))) : fmt::format("${:.2f}", usd);
}

std::span<const std::pair<std::string_view, Value>> units() {
  static const std::pair<std::string_view, Value> kUnits[] = {
      {"k", {1e3, {}}},
      {"M", {1e6, {}}},
      {"B", {1e9, {}}},
      {"T", {1e12, {}}},
      {"%", {.01, {}}},
      {"bytes", {1, bytes()}},
      {"KiB", {1024., bytes()}},
      {"MiB", {1048576., bytes()}},
      {"GiB", {1073741824., bytes()}},
      {"TiB", {1099511627776., bytes()}},
      {"GB", {1e9, bytes()}},
      {"GB/s", {1e9, bytes() / seconds()}},
      {"us", {1e-6, seconds()}},
      {"ms", {1e-3, seconds()}},
      {"s", {1, seconds()}},
      {"h", {3600, seconds()}},
      {"days", {86400, seconds()}},
      {"GFLOP", {1e9, flops()}},
      {"TFLOP", {1e12, flops()}},
      {"PFLOP", {1e15, flops()}},
      {"TFLOP/s", {1e12, flops() / seconds()}},
      {"FLOP", {1, flops()}},
      {"tokens", {1, tokens()}},
      {"tokens/s", {1, tokens() / seconds()}},
      {"dollars", {1, dollars()}},
      {"kWh", {3.6e6, joules()}},
  };
  return kUnits;
}

// The dimensions that values have, and how each is written.
struct Written {
  Dimension dimension;
  std::string (*text)(double number);
};
std::string text_of_bytes(double n) {
  return sim::format(sim::Bytes{std::llround(n)});
}
std::span<const Written> written() {
  static const Written kWritten[] = {
      {bytes(), text_of_bytes},
      {seconds(), [](double n) { return sim::format(sim::Seconds{n}); }},
      {flops(), [](double n) { return sim::format(sim::Flops{n}); }},
      {tokens(), [](double n) { return digits(n) + " tokens"; }},
      {dollars(), money},
      {joules(), energy},
      {bytes() / seconds(), [](double n) { return sim::format(sim::BytesPerSecond{n}); }},
      {bytes() / tokens(), [](double n) { return text_of_bytes(n) + " a token"; }},
      {flops() / seconds(), [](double n) { return sim::format(sim::FlopsPerSecond{n}); }},
      {flops() / bytes(), [](double n) { return digits(n) + " FLOP/byte"; }},
      {flops() / tokens(), [](double n) { return sim::format(sim::Flops{n}) + " a token"; }},
      {seconds() / tokens(), [](double n) { return sim::format(sim::Seconds{n}) + " a token"; }},
      {tokens() / seconds(), [](double n) { return digits(n) + " tokens/s"; }},
      {dollars() / tokens(), [](double n) { return money(n * 1e6) + " a million tokens"; }},
      {dollars() / seconds(), [](double n) { return money(n * 3600) + " an hour"; }},
      {joules() / seconds(), [](double n) { return digits(n) + " W"; }},
      {joules() / tokens(), [](double n) { return digits(n) + " J a token"; }},
  };
  return kWritten;
}

}  // namespace

bool Dimension::is_written() const {
  return is_none() || std::ranges::find(written(), *this, &Written::dimension) != written().end();
}

std::string Dimension::name() const {
  if (is_none()) return "a number";
  static constexpr std::array<std::string_view, 6> kNames = {"bytes",  "s",       "FLOP",
                                                             "tokens", "dollars", "joules"};
  std::string above, below;
  for (std::size_t i = 0; i < power.size(); ++i)
    for (int n = 0; n < std::abs(power[i]); ++n) {
      std::string& side = power[i] > 0 ? above : below;
      side.append(side.empty() ? "" : " x ").append(kNames[i]);
    }
  return below.empty() ? above : fmt::format("{}/{}", above.empty() ? std::string_view("1") : above, below);
}

std::optional<Style> style_from_name(std::string_view name) {
  if (name == "percent") return Style::percent;
  if (name == "times") return Style::times;
  if (name == "count") return Style::count;
  return std::nullopt;
}

std::string text(const Value& value, Style style) {
  const Dimension& d = value.dimension;
  const double n = value.number;
  if (d.is_none()) {
    if (style == Style::percent) return sim::format_percent(n);
    if (style == Style::times) return digits(n) + " times";
    if (style == Style::count) return sim::format_count(std::llround(n));
    return digits(n);
  }
  for (const Written& one : written())
    if (one.dimension == d) return one.text(n);
  return digits(n) + " " + d.name();
}

std::optional<Value> unit_from_name(std::string_view name) {
  for (const auto& [word, value] : units())
    if (word == name) return value;
  return std::nullopt;
}

std::vector<std::string_view> unit_names() {
  std::vector<std::string_view> names;
  for (const auto& [word, value] : units()) names.push_back(word);
  return names;
}

std::vector<std::string> dimension_names() {
  std::vector<std::string> names;
  for (const Written& one : written()) names.push_back(one.dimension.name());
  return names;
}

}  // namespace app::lesson
