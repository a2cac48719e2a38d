// Memory over time, as profilers export it: samples of live bytes by category through the steps of a run. Its
// clock is the host's, which runs ahead of the device and waits for it elsewhere than a prediction's does, so
// that moments cannot be compared; what a step holds at most can.
#pragma once
#include "sim/csv.h"

namespace sim {

// Columns of such a table beside its clock, t_s; what a column of a step is the largest of.
bool is_memory_series(const CsvTable& table);

// One row a step, numbered from 1 in the column `step`: the largest of each column within it. A step begins
// where the gradients of the one before are gone. Throws PresetError naming row and column of what is no
// number.
CsvTable steps_of_memory_series(const CsvTable& series, const std::string& file);

// The table whose rows are predicted: the table itself, or the steps of a memory series.
CsvTable comparable_table(CsvTable table, const std::string& file);

}  // namespace sim
