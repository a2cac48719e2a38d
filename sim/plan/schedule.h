// Pipeline schedules: in which order each stage runs the passes of its micro-batches. A schedule is a
// function in schedule_orders.cpp that returns the order of a stage, and a row of the table there; everything
// else works on any of them.
//
// clang-format off
//   gpipe        all forward passes, then all backward (Huang et al. 2019)
//   1f1b         warm-up, then one forward and one backward in turn (Narayanan et al. 2019)
//   interleaved  1f1b over several chunks of layers a stage (Narayanan et al. 2021); 1f1b with chunks is this too
//   breadth-first  all micro-batches pass a chunk before any passes the next one, forward and then backward
//                (Lamy-Poirier 2023, arXiv 2211.05953)
//   zb-h1        1f1b with backward in two parts, of inputs and of weights; those of weights fill the gaps at the
//                memory of 1f1b (Qi et al. 2023, arXiv 2401.10241)
//   zb-h2        the same with twice the micro-batches in flight, which leaves no gap where all parts take equally
//                long (there, section 2.2)
//   zb-v         two chunks a stage, placed as a V: the first stage has the first and the last model chunk
//                (there, section 6)
//   dualpipe     micro-batches enter at both ends, so that each stage holds two pieces and the model is there twice
//                (DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1)
//   dualpipev    dualpipe with the pieces of a V: one copy of the model (github.com/deepseek-ai/DualPipe)
// clang-format on
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/plan/problem.h"
#include "sim/scenario/fields.h"

namespace sim {

// One pass of a micro-batch through the layers of a chunk. `backward` is both parts in one.
enum class Pass { forward, backward, backward_input, backward_weight };

struct Slot {
  Pass pass{};
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;
  // Worked on together with the next slot, as DualPipe does to hide one's communication behind the other's
  // compute: both begin when both inputs are there, and both results go when both have ended.
  bool with_next = false;
  bool operator==(const Slot&) const = default;
};

// Where the model chunks lie.
enum class Placement {
  loop,            // chunk c of stage s is piece c * stages + s
  v,               // two chunks: down the stages, and back up
  two_directions,  // a piece a stage, twice: chunk 1 holds the model the other way round
};

struct Schedule {
  std::int32_t stages = 1, chunks = 1, micro_batches = 1;
  Placement placement = Placement::loop;
  std::vector<std::vector<Slot>> slots = {};  // of each stage, in order

  // Pieces that a micro-batch passes through.
  std::int32_t pieces() const { return placement == Placement::two_directions ? stages : stages * chunks; }
  std::int32_t piece(std::int32_t stage, std::int32_t chunk) const;
  // Where a piece lies for micro-batches that pass `chunk` (the chunk matters in two directions alone).
  struct Place {
    std::int32_t stage = 0, chunk = 0;
  };
  Place place_of(std::int32_t piece, std::int32_t chunk) const;
  // Whether a micro-batch passes a chunk: with two directions it passes only one of them.
  bool passes(std::int32_t micro_batch, std::int32_t chunk) const {
    return placement != Placement::two_directions || (micro_batch >= micro_batches / 2) == (chunk == 1);
  }
};

// Which backward passes are split into two parts, of inputs and of weights: none, some, or all.
enum class BackwardParts { whole, some_split, all_split };
// How many chunks of layers a stage may have: one; two or more (several); exactly two; any number.
enum class Chunks { one, several, two, any };

// A schedule and what follows from its order. Requires a name of kScheduleNames.
struct ScheduleTraits {
  std::string_view name;
  // The slots of a stage, by (stage, stages, chunks, micro-batches).
  std::vector<Slot> (*order)(std::int32_t, std::int32_t, std::int32_t, std::int32_t) = nullptr;
  Chunks chunks = Chunks::one;
  BackwardParts parts = BackwardParts::whole;
  Placement placement = Placement::loop;
  bool pairs = false;  // works on passes in pairs (Slot::with_next)
  // Micro-batches pass the chunks in groups of as many micro-batches as there are stages.
  bool in_groups = false;
  // How many groups fill the pipeline; each further group repeats the one before it. A group has as many
  // micro-batches as there are stages (two directions: twice as many). 0: no group repeats another.
  std::int32_t filling = 2;
};
const ScheduleTraits& traits_of_schedule(std::string_view name);
// The plainest schedule of a placement, with passes in pairs or without.
inline constexpr std::string_view kPlainSchedule = "1f1b";
std::string_view plainest_schedule(Placement placement, bool pairs);

// Why there is no such schedule; empty where there is. Fields are those of the strategy: "schedule",
// "virtual_pipeline".
std::vector<Problem> schedule_problems(std::string_view name, std::int64_t stages, std::int64_t chunks,
                                       std::int64_t micro_batches);
inline BackwardParts backward_parts(std::string_view name) {
  return traits_of_schedule(name).parts;
}
inline Placement placement_of(std::string_view name) {
  return traits_of_schedule(name).placement;
}
inline bool pairs_passes(std::string_view name) {
  return traits_of_schedule(name).pairs;
}

// Throws std::invalid_argument with the first of schedule_problems(). `chunks` is virtual_pipeline.
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

// The slots of a schedule in an order in which none waits for a later one. The list ends early where all
// stages wait for each other.
struct ScheduleEvent {
  std::int32_t stage = 0;
  std::size_t slot = 0;                   // of the stage
  std::int32_t received = -1, sent = -1;  // messages from other stages and to them
};
struct ScheduleEvents {
  std::vector<ScheduleEvent> events = {};
  std::size_t messages = 0;  // how many there are, numbered from 0
};
ScheduleEvents events_of(const Schedule& schedule);

}  // namespace sim
