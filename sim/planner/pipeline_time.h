// When each stage of a pipeline has run the passes of a step: exact, from what a pass takes as a whole.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "sim/cost/execution.h"
#include "sim/plan/schedule.h"
#include "sim/planner/pass_time.h"

namespace sim {

// A pass as a whole. It begins when its stage's compute stream is free, and leaves compute and collectives,
// each of which may have waited for either: sums and maxima, so that four numbers say all. Without exchange
// beside it, three of them say that nothing happens.
inline constexpr Seconds kNever{-1e30};
struct PassTime {
  Seconds duration;                            // of compute, from its own beginning
  Seconds compute_after_collectives = kNever;  // its end, from when earlier collectives end
  Seconds collectives_after_compute = kNever;  // the last collective's end, from its own beginning
  Seconds collectives{};                       // of all collectives one after the other
  // More of compute while earlier collectives still run: a share of the time that they take from its
  // beginning on, and at most.
  double slower = 0;
  Seconds most_slower{};
  HostTime host{};
  HostWork work{};
};

// Passes through one chunk of a stage; of its first and last micro-batch some exchange more.
struct ChunkPasses {
  PassTime forward, backward, input, weight;
  PassTime first_forward, last_backward, last_input, last_weight;
  ActionTime begin_gradients;  // before the first backward pass
};

// The same unit by unit.
struct ChunkSteps {
  std::array<std::vector<UnitStep>, 8> passes;  // in the order of kPasses
  std::int32_t prefetch = 0;
  std::vector<UnitStep>& of(PassTime ChunkPasses::*pass);
  const std::vector<UnitStep>& of(PassTime ChunkPasses::*pass) const;
};

struct TransferTimes {
  ActionTime send_forward, send_backward, receive_forward, receive_backward;
  bool in_order = false;  // sends stand in the compute stream
};

// Where a stage's streams stand, after its last pass or before its first.
struct StageEnd {
  Seconds compute, collectives, sends, host;
};

// Before the first pass of each stage; empty: at zero.
struct PipelineBegin {
  std::vector<StageEnd> stages;
  // By stage and chunk, what ends the first forward pass at the earliest: parameters that are gathered from
  // the beginning of the step on, which are none of that pass's own collectives. Empty: none are.
  std::vector<Seconds> first_forward;
};

// One of several runs of a pipeline.
struct PipelinePasses {
  std::span<const ChunkPasses> passes;  // of distinct pieces
  PipelineBegin begin;
};

// A pipeline that was run, and what its duration is made of: with passes that take somewhat longer it takes
// longer by as much as those of them on its longest path.
struct PipelineRun {
  std::vector<StageEnd> ends;
  std::vector<Seconds> last_began;      // by stage and chunk: when the pass that ends its gradients began
  std::vector<Seconds> first_backward;  // by stage
  // By stage and chunk, how many passes of each sort, in the order of kPasses, lie on the longest path, and
  // how often gradients begin there.
  std::vector<std::array<double, 9>> on_path;
  // Of these, how many the stage's next pass follows at once.
  std::vector<std::array<double, 8>> followed;
};

// A chunk's passes in the order of ChunkPasses.
inline constexpr std::array<PassTime ChunkPasses::*, 8> kPasses{
    &ChunkPasses::forward,    &ChunkPasses::backward,      &ChunkPasses::input,
    &ChunkPasses::weight,     &ChunkPasses::first_forward, &ChunkPasses::last_backward,
    &ChunkPasses::last_input, &ChunkPasses::last_weight};

}  // namespace sim
