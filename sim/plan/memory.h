// Memory follows from the plan: which instance of which buffer lives when, where it lies in one arena, and
// what the peak is.
//
// Lives:
//   Lifetime::plan            from before the first operation to after the last
//   Lifetime::first_use       in the first step from the first operation that uses the instance, later always
//   Lifetime::uses            from the first operation that uses the instance to the last, over all actions
//   Lifetime::pass            from the first operation that uses the instance to the end of the backward pass
//   BufferClass::scratch      within each action of its block: contents do not outlive the action, and every
//                             action of the block uses the same addresses
// Micro-batches that follow each other without overlap repeat the first one's lives at the first one's
// addresses: their activations are one set of instances.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/units.h"

namespace sim {

// Time inside a program: operations counted over all its actions, from 0.
using OpTime = std::int64_t;

// A buffer at a layer and micro-batch.
struct Instance {
  BufferId buffer = kNoBuffer;
  std::int32_t layer = 0, micro_batch = 0;  // 0 where the buffer is not per layer, per micro-batch
  Bytes bytes;                              // largest over the variables that it is used with
  // Inclusive. For scratch: indices of operations in its block. For instances that micro-batches share: in
  // the first of them.
  OpTime first = 0, last = 0;
  Bytes offset;  // in the arena
};

using MemoryByClass = EnumArray<BufferClass, Bytes>;
Bytes total(const MemoryByClass& m);

inline constexpr std::int64_t kArenaAlignment = 256;  // bytes; cuBLASLt and vector loads need 16
constexpr Bytes aligned(Bytes b) {
  return {(b.value + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment};
}

// What happens in [begin, begin + period) happens count times in a row, in the same memory.
struct Repetition {
  OpTime begin = 0, period = 0;
  std::int64_t count = 1;
  OpTime end() const { return begin + period * count; }
  // The time of the first round that corresponds to t.
  OpTime fold(OpTime t) const { return t < begin || t >= end() ? t : begin + (t - begin) % period; }
};

struct MemoryPlan {
  std::vector<Instance> instances;  // sorted by (buffer, layer, micro_batch)
  Bytes arena;                      // highest offset + bytes over instances, each rounded up to the alignment
  Bytes live_peak;                  // largest sum of live instances, each rounded up to the alignment
  OpTime peak_time = 0;
  MemoryByClass at_peak{};  // adds up to live_peak
  OpTime duration = 0;
  std::size_t program = 0;
  Repetition micro_batches;  // count 1: nothing repeats

  // The instance of a buffer; layer and micro_batch are ignored where the buffer has none. Logarithmic in the
  // number of instances. Throws std::out_of_range if the plan has none.
  const Instance& find(const Plan& plan, BufferId buffer, std::int32_t layer, std::int32_t micro_batch) const;
  // The instance of an operand of an action.
  const Instance& find(const Plan& plan, const Action& action, const Operand& operand) const {
    return find(plan, operand.buffer, action.layer + operand.layer_offset, action.micro_batch);
  }
};

// assigned: offsets by best fit, largest first. arena >= live_peak; the difference is what packing wastes.
// none: all offsets are 0 and the arena is the live peak, which is enough to predict plans with many
// instances. unlisted: as none, but without the list of instances, for callers that need the peak alone.
enum class Addresses { assigned, none, unlisted };
// In training, the first step makes some buffers (Lifetime::first_use), which later steps find.
enum class Step { first, later };
MemoryPlan plan_memory(const Plan& plan, std::size_t program = 0, Addresses addresses = Addresses::assigned,
                       Step step = Step::later);

// The same for what a rank keeps in its host's memory (offloading); empty without offloading.
MemoryPlan plan_host_memory(const Plan& plan, std::size_t program = 0);

// Calls visit for every program, in order, in a later step; quicker than one after the other.
void plan_memory_of_all(const Plan& plan, Addresses addresses, const std::function<void(MemoryPlan)>& visit);

// Live bytes by class at each operation, thinned to the points where something changes; where that makes more
// than max_points, to the largest total of each of max_points equal intervals.
struct MemoryPoint {
  OpTime time = 0;
  MemoryByClass bytes{};
};
std::vector<MemoryPoint> memory_timeline(const Plan& plan, const MemoryPlan& memory,
                                         std::size_t max_points = std::numeric_limits<std::size_t>::max());

// What is live at a time, largest first, instances of one buffer added up.
struct LiveBuffer {
  BufferId buffer = kNoBuffer;
  Bytes bytes;  // rounded up to the alignment
  std::int64_t instances = 0;
};
std::vector<LiveBuffer> live_at(const Plan& plan, const MemoryPlan& memory, OpTime time);

// Times at which the actions of a program begin, and at the end its duration.
std::vector<OpTime> action_times(const Plan& plan, std::size_t program = 0);

}  // namespace sim
