// A hardware preset's calibration set to measurements of a user's own: each published table of kernels or
// collectives times one factor. Rows say how far the table is off on the hardware at hand; its shape stays.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/gpu_calibration.h"

namespace sim {

struct TableShift {
  std::string what, software;  // of the table, as published_fits() names it
  double factor = 1;           // on its times; 1 where rows held out come no nearer by one
  std::int64_t rows = 0;       // that it was fitted to
  // Quantiles of |predicted / measured - 1|: as the table ships, and of each row by the factor of all others.
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

// Fewer rows say nothing: each is held out once, and what is left must have a middle.
inline constexpr std::size_t kLeastRowsOfShift = 3;

// From measured over predicted times of one table's rows, all above 0: their median in place, where rows held
// out are nearer by it.
TableShift shift_of(std::string what, std::string software, std::vector<double> ratios);

// Multiplies the tables that it names; those that are no more are left out. `gpu` is the preset's.
void apply(const Refit& refit, GpuCalibration& gpu);

Refit refit_from_json(std::string_view json, const std::string& file);  // throws PresetError
std::string to_json(const Refit& refit);

}  // namespace sim
