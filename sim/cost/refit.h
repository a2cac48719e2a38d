// Fits a hardware preset's calibration to a user's own measurements: each published table of kernels or
// collectives is multiplied by one factor. Measured rows set the factor; the table's shape over sizes stays.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/gpu_calibration.h"

namespace sim {

struct TableShift {
  std::string what, software;  // of the table, as published_fits() names it
  double factor = 1;           // on its times; 1 where a factor brings rows held out no nearer
  std::int64_t rows = 0;       // measured rows that the factor was fitted to
  // Quantiles of |predicted / measured - 1|: as the table ships, and with the factor of all other rows.
  double median_before = 0, median = 0, p90 = 0;
  bool operator==(const TableShift&) const = default;
};

struct Refit {
  std::string hardware;  // preset
  std::string rows_of;   // the file of the measurements
  std::string date;      // ISO 8601
  std::vector<TableShift> shifts;
  bool operator==(const Refit&) const = default;
};

// Fewer rows do not suffice: each row is held out once, and the others must have a median.
inline constexpr std::size_t kLeastRowsOfShift = 3;

// The shift of one table. `ratios`: measured over predicted time of each row, all above 0. The factor is
// their median, where it brings rows held out nearer.
TableShift shift_of(std::string what, std::string software, std::vector<double> ratios);

// Sets the factors of the tables that `refit` names; names without a table are ignored. `gpu`: the preset's.
void apply(const Refit& refit, GpuCalibration& gpu);

Refit refit_from_json(std::string_view json, const std::string& file);  // throws PresetError
std::string to_json(const Refit& refit);

}  // namespace sim
