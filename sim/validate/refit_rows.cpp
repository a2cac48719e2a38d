#include "sim/validate/refit_rows.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sim/cost/fits.h"
#include "sim/preset_error.h"
#include "sim/validate/table_validation.h"
#include "sim/validate/table_words.h"

namespace sim {
namespace {

// Rows of the table that are of the hardware; the rest need no prediction.
CsvTable rows_of(const CsvTable& table, const std::string& hardware) {
  CsvTable own{.header = table.header, .rows = {}};
  const std::optional<std::size_t> index = table.column("gpu");
  if (!index) return own;
  std::map<std::string, bool> known;
  for (const std::vector<std::string>& row : table.rows) {
    const auto [found, is_new] = known.try_emplace(row[*index]);
    if (is_new) found->second = hardware_preset_of(row[*index]) == hardware;
    if (found->second) own.rows.push_back(row);
  }
  return own;
}

}  // namespace

Refit refit(const CsvTable& table, const std::string& name, const std::string& hardware,
            const std::string& date, const std::function<bool(std::size_t done)>& go_on) {
  const CsvTable own = rows_of(table, hardware);
  const Validation validation = validate_table(own, go_on);
  const std::vector<FittedRows> fits = published_fits(hardware);
  // Measured over predicted times, by what the tables are called.
  std::map<std::pair<std::string, std::string>, std::vector<double>> ratios;
  for (std::size_t i = 0; i < own.rows.size(); ++i) {
    const auto comparison = compare_row(own, i, validation);
    const std::vector<Prediction>& predictions = validation.rows[i].predictions;
    if (!comparison || predictions.empty()) continue;
    const auto read = predictions.front().table;
    if (!read || *read >= fits.size() || !(comparison->error > -1)) continue;
    ratios[{fits[*read].what, fits[*read].software}].push_back(1 / (1 + comparison->error));
  }
  if (ratios.empty())
    throw PresetError(name + ": no row is a kernel, a matrix product or a collective that a table of " +
                      hardware + " predicts (columns of such tables: presets/published/README.md)");
  Refit refit{.hardware = hardware, .rows_of = name, .date = date, .shifts = {}};
  // In the order in which the fits are listed.
  for (const FittedRows& fit : fits) {
    const auto found = ratios.find({fit.what, fit.software});
    if (found == ratios.end()) continue;
    refit.shifts.push_back(shift_of(fit.what, fit.software, std::move(found->second)));
    ratios.erase(found);
  }
  return refit;
}

}  // namespace sim
