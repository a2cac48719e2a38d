#include "sim/economics/published_models.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "sim/csv.h"
#include "sim/scenario/preset.h"

namespace sim {
namespace {

constexpr std::array<std::string_view, 9> kColumns = {
    "model", "preset", "family", "gpu", "gpu_hours", "commonsense", "mmlu", "hours_source", "quality_source"};

class Row {
 public:
  Row(const CsvTable& table, std::size_t row, const std::string& file)
      : cells_(table.rows[row]), where_(file + " line " + std::to_string(row + 2)) {}

  const std::string& text(std::size_t column) const {
    if (cells_[column].empty())
      throw PresetError(where_ + ": " + std::string(kColumns[column]) + " is empty");
    return cells_[column];
  }
  const std::string& any_text(std::size_t column) const { return cells_[column]; }
  // Absent where the cell is empty.
  std::optional<double> number(std::size_t column, double most) const {
    const std::string& cell = cells_[column];
    if (cell.empty()) return std::nullopt;
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size() || !(value > 0) || !(value <= most))
      throw PresetError(where_ + ": " + std::string(kColumns[column]) +
                        " must be a number above 0 and at most " + std::to_string(most) + ", but is \"" +
                        cell + "\"");
    return value;
  }

 private:
  const std::vector<std::string>& cells_;
  std::string where_;
};

}  // namespace

std::vector<PublishedModel> published_models_from_csv(std::string_view csv, const std::string& file) {
  const CsvTable table = csv_from_text(csv, file);
  if (!std::equal(table.header.begin(), table.header.end(), kColumns.begin(), kColumns.end())) {
    std::string columns;
    for (const std::string_view column : kColumns) columns.append(columns.empty() ? "" : ",").append(column);
    throw PresetError(file + ": the columns must be " + columns);
  }
  constexpr double kMostHours = 1e9, kPercent = 100;
  std::vector<PublishedModel> models;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const Row row(table, i, file);
    PublishedModel model{.name = row.text(0),
                         .preset = row.text(1),
                         .family = row.text(2),
                         .gpu = row.any_text(3),
                         .gpu_hours = row.number(4, kMostHours),
                         .commonsense = row.number(5, kPercent),
                         .mmlu = row.number(6, kPercent),
                         .hours_source = row.any_text(7),
                         .quality_source = row.text(8)};
    // A figure needs its source.
    if (model.gpu_hours) row.text(7);
    models.push_back(std::move(model));
  }
  return models;
}

std::vector<PublishedModel> load_published_models() {
  const std::filesystem::path path = preset_directory() / "published" / "quality.csv";
  return published_models_from_csv(preset_text(path), path.string());
}

}  // namespace sim
