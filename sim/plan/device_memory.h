// What a device holds while a plan runs: what is live, what the framework's allocator reserves for it, and
// what lies outside both.
#pragma once

#include "sim/plan/memory.h"

namespace sim {

struct DeviceMemory {
  Bytes live;      // most at a time, with the copies of whole stages that the memory profile names
  Bytes copies;    // of that, those copies
  Bytes reserved;  // by the allocator; of a planned arena, the arena
  Bytes context;   // beside it
  Bytes total() const { return reserved + context; }
};

// After the second step, when all that is made once is there. `limit` is what the allocator may reserve
// before it gives back what it holds free.
DeviceMemory device_memory(const Plan& plan, const MemoryPlan& memory,
                           Bytes limit = {std::numeric_limits<std::int64_t>::max()});
// Whether device_memory() reads the instances of a memory plan, or only its peak.
bool looks_at_instances(const MemoryProfile& profile);

// Copies of whole stages that the memory profile names, for a rank that holds so many elements of parameters:
// at all times; of the reduction before the optimizer's step, and of the step, one tensor each.
struct StageCopies {
  Bytes always;
  Bytes reduced;
  Bytes step_fp16, step_fp32;
};
StageCopies copies_of_stage(const Scenario& scenario, double held_parameters);

}  // namespace sim
