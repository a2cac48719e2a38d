// Pipeline schedules: in which order each stage runs the passes of its micro-batches. A schedule is one
// function in schedule.cpp that returns the orders; everything else works on any of them.
//
//   gpipe        all forward passes, then all backward (Huang et al. 2019)
//   1f1b         warm-up, then one forward and one backward in turn (Narayanan et al. 2019)
//   interleaved  1f1b over several chunks of layers a stage (Narayanan et al. 2021); 1f1b with chunks is this
//   too zb-h1        1f1b with backward in two parts, of inputs and of weights; those of weights fill the
//   gaps at the
//                memory of 1f1b (Qi et al. 2023, arXiv 2401.10241)
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/units.h"

namespace sim {

// One pass of a micro-batch through the layers of a chunk. `backward` is both parts in one.
enum class Pass { forward, backward, backward_input, backward_weight };

struct Slot {
  Pass pass{};
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;
  bool operator==(const Slot&) const = default;
};

// A model is cut into stages * chunks pieces; piece number chunk * stages + stage is chunk `chunk` of a
// stage.
struct Schedule {
  std::int32_t stages = 1, chunks = 1, micro_batches = 1;
  std::vector<std::vector<Slot>> slots;  // of each stage, in order

  std::int32_t pieces() const { return stages * chunks; }
  std::int32_t piece(std::int32_t stage, std::int32_t chunk) const { return chunk * stages + stage; }
};

std::span<const std::string_view> schedule_names();

// Why there is no such schedule, as what follows "strategy.FIELD"; empty where there is.
struct ScheduleProblem {
  std::string field;  // "schedule", "virtual_pipeline"
  std::string message;
};
std::vector<ScheduleProblem> schedule_problems(std::string_view name, std::int64_t stages,
                                               std::int64_t chunks, std::int64_t micro_batches);
bool splits_backward(std::string_view name);  // into its two parts

// Requires schedule_problems(...).empty().
Schedule make_schedule(std::string_view name, std::int32_t stages, std::int32_t chunks,
                       std::int32_t micro_batches);

// The layers [first, last) of a piece. What does not divide evenly goes to the pieces in the middle: the
// first and the last have embedding and head besides (Llama 3, arXiv 2407.21783, section 3.3.2).
struct LayerRange {
  std::int32_t first = 0, last = 0;
};
// With a head of the cost of `head` layers, pieces take layers in turn until they exceed their share of the
// whole cost (nanotron, PipelineParallel's build_model); some may get none.
LayerRange layers_of(std::int32_t piece, std::int32_t pieces, std::int32_t layers, double head = 0);

// What makes a schedule legal, one sentence a violation: each stage runs each pass of each of its chunks once
// for each micro-batch; none waits for one that, in the given orders, cannot have come before (which would be
// a deadlock).
std::vector<std::string> check(const Schedule& schedule);

// Durations of a stage's passes over one chunk, and of a transfer to the next piece. `backward` takes both
// parts.
struct PassTimes {
  Seconds forward, backward_input, backward_weight;
};
struct ScheduleTimes {
  std::vector<std::vector<Seconds>> start;  // of each slot of each stage
  Seconds duration;                         // until the last slot of all ends
  std::vector<Seconds> idle;                // of each stage, in that time
};
// Exact for stages of unequal speed: a slot begins when its stage is free and its input has arrived;
// transfers take their time beside compute. Requires check(schedule).empty(), and as many `times` as stages.
ScheduleTimes run(const Schedule& schedule, const std::vector<PassTimes>& times, Seconds transfer);

// Most micro-batches, in chunks, whose activations a stage holds at the same time: from the beginning of
// their forward pass to the end of the last part of their backward pass. A chunk counts as one.
std::int64_t most_in_flight(const Schedule& schedule, std::int32_t stage);

}  // namespace sim
