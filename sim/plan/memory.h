// Memory follows from the plan: which instance of which buffer lives when, where it lies in one arena, and
// what the peak is.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/units.h"

namespace sim {

// Time inside a program: operations counted over all its actions, from 0.
using OpTime = std::int64_t;

// A buffer at a layer and micro-batch.
struct Instance {
  BufferId buffer = kNoBuffer;
  std::int32_t layer = 0, micro_batch = 0;
  Bytes bytes;                 // largest over the actions that use it
  OpTime first = 0, last = 0;  // inclusive
  Bytes offset;                // in the arena
};

using MemoryByClass = std::array<Bytes, kBufferClasses>;  // indexed by BufferClass
Bytes total(const MemoryByClass& m);

inline constexpr std::int64_t kArenaAlignment = 256;  // bytes; cuBLASLt and vector loads need 16

struct MemoryPlan {
  std::vector<Instance> instances;  // sorted by (buffer, layer, micro_batch)
  Bytes arena;                      // highest offset + bytes over instances
  Bytes live_peak;                  // largest sum of live instances, each rounded up to the alignment
  OpTime peak_time = 0;
  MemoryByClass at_peak{};  // adds up to live_peak
  OpTime duration = 0;

  // The instance of an operand; throws std::out_of_range if the plan has none.
  const Instance& find(const Plan& plan, BufferId buffer, std::int32_t layer, std::int32_t micro_batch) const;
};

// Live ranges, and offsets by best fit over live ranges (largest first). arena >= live_peak; the difference
// is what packing wastes.
MemoryPlan plan_memory(const Plan& plan, std::size_t program = 0);

// Live bytes by class after each operation, thinned to the points where something changes.
struct MemoryPoint {
  OpTime time = 0;
  MemoryByClass bytes{};
};
std::vector<MemoryPoint> memory_timeline(const Plan& plan, const MemoryPlan& memory);

// What is live at the peak, largest first, instances of one buffer added up.
struct LiveBuffer {
  BufferId buffer = kNoBuffer;
  Bytes bytes;
  std::int64_t instances = 0;
};
std::vector<LiveBuffer> live_at(const Plan& plan, const MemoryPlan& memory, OpTime time);

}  // namespace sim
