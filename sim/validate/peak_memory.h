// The device memory that a row's run is predicted to take.
#pragma once
#include "sim/units.h"
#include "sim/validate/row_reader.h"
#include "sim/validate/training_scenario.h"

namespace sim {

struct MemoryBand {
  Bytes value, low, high;  // 90 % band
};

// Peaks of the pipeline stage that the software reports, over all modes that the row may have run in.
struct PeakMemory {
  MemoryBand live;            // tensors
  MemoryBand reserved;        // what the allocator holds for the tensors
  MemoryBand device;          // with memory outside the allocator
  bool fits = true;           // on all stages, with free segments given back where the device is full
  bool reads_device = false;  // runs of the software report `device`, else `reserved`
};
PeakMemory peak_memory(const TrainingRow& training);

// The number that the row reports: allocated memory where its component says so, else the number that the
// row's software prints.
Prediction memory_prediction(const TableRow& row, std::string_view column, const PeakMemory& peak);
// "fits" or "does not fit".
Prediction outcome_prediction(const PeakMemory& peak);

}  // namespace sim
