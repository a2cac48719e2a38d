// Refits a calibration preset to a table of measurements.
#pragma once
#include <functional>
#include <string>

#include "sim/cost/refit.h"
#include "sim/csv.h"

namespace sim {

// Uses the rows that are kernels, products or collectives of that hardware. Each row counts for the published
// table that predicts it; rows that several tables or a formula predict are left out. `name` is the table's,
// `date` is today's. `go_on` is that of validate_table(); once it says no, the rest is not used. Throws
// PresetError of one sentence where no row is left.
Refit refit(
    const CsvTable& table, const std::string& name, const std::string& hardware, const std::string& date,
    const std::function<bool(std::size_t done)>& go_on = [](std::size_t) { return true; });

}  // namespace sim
