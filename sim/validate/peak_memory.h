// What a row's run is predicted to take of its device's memory.
#pragma once
#include "sim/units.h"
#include "sim/validate/training_scenario.h"

namespace sim {

struct PeakMemory {
  Bytes live, reserved, device;  // tensors; what the allocator holds; with what lies outside it
  double low = 1, high = 1;      // 90 % band: factors
  bool fits = true;              // with segments given back where the device is full
};

// Of the fullest pipeline stage, or of the first: what a log of rank 0 says.
enum class ReportedStage { fullest, first };
PeakMemory peak_memory(const TrainingRow& training, ReportedStage stage);

// Who reports which: by the row's source, framework and component.
ReportedStage reported_stage(const TableRow& row);
Bytes reported_bytes(const TableRow& row, const PeakMemory& peak);

}  // namespace sim
