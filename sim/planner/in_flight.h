// How many micro-batches a stage holds while it works on another: all that its memory needs of a schedule.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/plan/schedule.h"

namespace sim {

// A moment of a pass, and the micro-batches in flight besides the pass's own.
struct InFlight {
  Pass pass{};
  std::int32_t chunk = 0, stage = 0;
  // Where a stage has the model's first and last pieces as two chunks: micro-batches on their way from one to
  // the other, in the forward and in the backward pass.
  std::int32_t between_forward = 0, between_backward = 0;
  std::int32_t carried_back = 0;  // between the backward passes of two chunks
  bool covered = false;  // the stage before has a moment of the same pass that holds as much of everything
};
struct ChunkInFlight {
  std::int32_t kept = 0;     // between forward and backward
  std::int32_t waiting = 0;  // for the backward pass of weights
  bool begun = false;        // has had a backward pass, where that matters
};

// Moments at which stages hold most: by pass, then by chunk, then by stage.
struct StagesInFlight {
  std::vector<InFlight> moments;
  std::vector<ChunkInFlight> chunks;  // of each moment, one after the other
};
// `begins_gradients`: whether gradients are there from a chunk's first backward pass on, not before.
StagesInFlight in_flight(const Schedule& schedule, bool begins_gradients);

}  // namespace sim
