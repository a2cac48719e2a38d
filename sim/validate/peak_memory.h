// What a row's run is predicted to take of its device's memory.
#pragma once
#include "sim/units.h"
#include "sim/validate/row_reader.h"
#include "sim/validate/training_scenario.h"

namespace sim {

struct MemoryBand {
  Bytes value, low, high;  // 90 % band
};

// Of the fullest pipeline stage; of nanotron's runs of the first, whose rank 0 writes its logs.
struct PeakMemory {
  MemoryBand live;             // tensors
  MemoryBand reserved;         // what the allocator holds for them
  MemoryBand device;           // with what lies outside it
  bool fits = true;            // on all stages, with free segments given back where the device is full
  bool in_other_mode = false;  // the row's, as most runs like it, provided that it fits
};
PeakMemory peak_memory(const TrainingRow& training);

// The number that the row's source reports, by its source and component.
Prediction memory_prediction(const TableRow& row, std::string_view column, const PeakMemory& peak);
// "fits" or "does not fit".
Prediction outcome_prediction(const PeakMemory& peak);

}  // namespace sim
