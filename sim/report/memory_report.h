// Memory of a training step or a generation by name: what makes up the peak, and how the first step differs
// from later ones.
#pragma once
#include <string>
#include <vector>

#include "sim/plan/device_memory.h"
#include "sim/report/report.h"

namespace sim {

// One rank's ledger. Its lines add up to all memory that the device holds: live memory at the peak by class,
// whole-stage "copies", "packing" or "allocator" (reserved beyond live memory), and "context".
std::vector<MemoryLine> memory_ledger(const Plan& plan, const MemoryPlan& memory, std::int32_t rank);

// A tensor that is live at the peak; instances of all layers and micro-batches added up.
struct PeakTensor {
  std::string name;
  BufferClass buffer_class{};
  Bytes bytes;
  std::int64_t instances = 0;
};

struct StepMemory {
  std::size_t program = 0;  // the pipeline stage
  Bytes peak;               // of the device, as the ledger adds up
  std::vector<MemoryLine> ledger;
  std::vector<PeakTensor> at_peak;  // largest first
  std::vector<MemoryPoint> timeline;
};

// A stage's memory in the first step and in a later one. In the first step, buffers that an implementation
// makes lazily are missing until they are made: optimizer moments, gradients before the first backward pass.
struct MemoryReport {
  StepMemory first, later;
};
MemoryReport memory_report(const Plan& plan, std::size_t program, std::size_t max_points = 2000);
std::size_t fullest_program(const Plan& plan);  // the stage with the most live memory in a later step

}  // namespace sim
