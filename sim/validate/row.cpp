#include "sim/validate/row.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sim/plan/legality.h"
#include "sim/validate/table_words.h"

namespace sim {

std::optional<double> number_in(std::string_view cell) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

void require_legal(const Scenario& scenario) {
  const std::vector<Problem> problems = validate(scenario);
  if (problems.empty()) return;
  const std::string sentence = problems.front().field + " " + problems.front().message;
  if (problems.front().field.starts_with("strategy.")) throw IllegalStrategy(sentence);
  throw CannotPredict(sentence);
}

std::string_view TableRow::text(std::string_view column) const {
  for (const MeasuredColumn& measured : measured_)
    if (measured.name == column)
      throw std::logic_error("a prediction reads the measured column " + std::string(column));
  return table_.cell(row_, column);
}

std::optional<double> TableRow::number_if_given(std::string_view column) const {
  const std::string_view cell = text(column);
  if (cell.empty()) return std::nullopt;
  const std::optional<double> value = number_in(cell);
  if (!value)
    throw CannotPredict(std::string(column) + " is \"" + std::string(cell) + "\", which is no number");
  return value;
}

std::optional<std::int64_t> TableRow::count_if_given(std::string_view column) const {
  const std::optional<double> value = number_if_given(column);
  if (!value) return std::nullopt;
  constexpr double kMost = 1e9;
  if (!(*value >= 1) || *value > kMost || *value != std::floor(*value))
    throw CannotPredict(std::string(column) + " must be a whole number of 1 or more");
  return static_cast<std::int64_t>(*value);
}

std::int64_t TableRow::count(std::string_view column) const {
  if (const std::optional<std::int64_t> value = count_if_given(column)) return *value;
  throw CannotPredict(std::string(column) + " is not given");
}

std::optional<bool> TableRow::flag_if_given(std::string_view column) const {
  const std::string cell = lower(text(column));
  if (cell.empty()) return std::nullopt;
  return cell.starts_with("y") || cell == "true" || cell == "1";
}

double TableRow::number(std::string_view column) const {
  const std::optional<double> value = number_if_given(column);
  if (!value) throw CannotPredict(std::string(column) + " is not given");
  return *value;
}

double TableRow::positive(std::string_view column) const {
  const double value = number(column);
  if (!(value > 0)) throw CannotPredict(std::string(column) + " must be above 0");
  return value;
}

}  // namespace sim
