#include "sim/validate/memory_series.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/preset_error.h"
#include "sim/validate/row.h"

namespace sim {
namespace {

constexpr std::array<std::string_view, 5> kColumns{"total_gib", "parameter_gib", "optimizer_state_gib",
                                                   "activation_gib", "gradient_gib"};
constexpr std::size_t kGradient = 4;

std::string text_of(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

bool is_memory_series(const CsvTable& table) {
  return table.column("t_s") &&
         std::ranges::all_of(kColumns, [&](std::string_view name) { return table.column(name).has_value(); });
}

CsvTable steps_of_memory_series(const CsvTable& series, const std::string& file) {
  CsvTable steps;
  steps.header = {"source", "step"};
  for (const std::string_view name : kColumns) steps.header.emplace_back(name);
  std::array<double, kColumns.size()> most{};
  // Gradients come in a step, and are freed before the next step's forward pass.
  double gradients = 0;
  const auto end_step = [&] {
    std::vector<std::string>& row = steps.rows.emplace_back();
    row = {"a profile's steps", std::to_string(steps.rows.size())};
    for (const double value : most) row.push_back(text_of(value));
    most = {};
  };
  for (std::size_t r = 0; r < series.rows.size(); ++r) {
    std::array<double, kColumns.size()> sample{};
    for (std::size_t c = 0; c < kColumns.size(); ++c) {
      const std::optional<double> value = number_in(series.rows[r][*series.column(kColumns[c])]);
      if (!value || *value < 0)
        throw PresetError(file + ": row " + std::to_string(r + 1) + ": " + std::string(kColumns[c]) +
                          " must be a number of GiB, 0 or more");
      sample[c] = *value;
    }
    if (gradients > 0 && sample[kGradient] == 0) end_step();
    gradients = sample[kGradient];
    for (std::size_t c = 0; c < kColumns.size(); ++c) most[c] = std::max(most[c], sample[c]);
  }
  if (most[kGradient] > 0) end_step();
  return steps;
}

CsvTable comparable_table(CsvTable table, const std::string& file) {
  return is_memory_series(table) ? steps_of_memory_series(table, file) : std::move(table);
}

}  // namespace sim
