// A calibration preset refitted to a table of measurements.
#pragma once
#include <functional>
#include <string>

#include "sim/cost/refit.h"
#include "sim/csv.h"

namespace sim {

// From the rows that are kernels, products or collectives of that hardware; each counts for the published
// table that predicts it, and those that several tables or a formula predict are left out. `name` is the
// table's, `date` of today. `go_on` as validate_table() has it; once it says no, nothing is fitted to the
// rest. Throws PresetError of one sentence where no row is left.
Refit refit(
    const CsvTable& table, const std::string& name, const std::string& hardware, const std::string& date,
    const std::function<bool(std::size_t done)>& go_on = [](std::size_t) { return true; });

}  // namespace sim
