// Memory over time, as profilers export it: samples of live bytes by category through the steps of a run. Its
// clock is the host's. The host runs ahead of the device and waits for it at other places than a prediction's
// host does. So single moments cannot be compared, but the peaks of a step can.
#pragma once
#include "sim/csv.h"

namespace sim {

// Whether a table is such a series: it has the clock t_s and a column of live memory for each category.
bool is_memory_series(const CsvTable& table);

// One row for each step, numbered from 1 in the column `step`, with the largest value of each column within
// the step. A step begins where the gradients of the step before are gone. Throws PresetError that names row
// and column of a cell that is not a number.
CsvTable steps_of_memory_series(const CsvTable& series, const std::string& file);

// The table whose rows are predicted: the table itself, or the steps of a memory series.
CsvTable comparable_table(CsvTable table, const std::string& file);

}  // namespace sim
