// Which micro-batches a stage holds while it works on another: what of a schedule its memory depends on.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/plan/schedule.h"

namespace sim {

// Of a pass, and the micro-batches but its own.
struct InFlight {
  Pass pass{};
  std::int32_t chunk = 0;
  std::vector<bool> begun;            // chunks that have had a backward pass
  std::vector<std::int32_t> kept;     // by chunk: between forward and backward
  std::vector<std::int32_t> waiting;  // by chunk: for the backward pass of weights
  // Where a stage has the model's first and its last piece as two chunks: on their way from the one to the
  // other, forward and back.
  std::int32_t between_forward = 0, between_backward = 0;
  std::int32_t carried_back = 0;  // between the backward passes of two chunks
  bool operator==(const InFlight&) const = default;
};

// Of each stage: for each kind of pass the moments that hold most.
std::vector<std::vector<InFlight>> in_flight(const Schedule& schedule);

// What a stage may hold most of, whatever a micro-batch takes in its chunks.
struct MostHeld {
  // Of moments that no other exceeds in everything, one after the other: of each chunk the micro-batches that
  // are kept, and of each that wait.
  std::vector<std::int32_t> micro_batches;
  std::int32_t waiting = 0;          // most in all chunks
  bool no_more_than_before = false;  // than the stage before, whatever they take
};
std::vector<MostHeld> most_held(const std::vector<std::vector<InFlight>>& stages);

}  // namespace sim
