// Peak memory of a pipeline stage: what passes keep and need (pass_memory.h), of the micro-batches that its
// schedule has in flight, beside parameters and their states (state_memory.h).
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/planner/exchange_memory.h"
#include "sim/planner/pass_memory.h"
#include "sim/planner/piece.h"
#include "sim/planner/state_memory.h"

namespace sim {

// Most passes of each kind in flight at a moment that matters: of all, the moments that hold most.
struct InFlight {
  Pass pass{};
  std::int32_t chunk = 0;
  std::vector<bool> begun;                  // gradients, by chunk
  std::vector<std::int32_t> kept, waiting;  // others' micro-batches by chunk; waiting for their weights' pass
  // Where a stage has the model's first and its last piece as two chunks: micro-batches on their way from the
  // one to the other, forward and back.
  std::int32_t between_forward = 0, between_backward = 0;
  bool operator==(const InFlight&) const = default;
};
std::vector<std::vector<InFlight>> in_flight(const Schedule& schedule);

// A moment at which a stage may be fullest.
struct StageMoment {
  double bytes = 0;  // but for what lives always and accumulated gradients
  UnitCounts begun;  // whose gradients are accumulated
};

// What a stage's activations make of it, whatever its states. Refers to pieces, their memory and what is in
// flight.
struct StageActivations {
  std::vector<const Piece*> pieces;  // of its chunks
  std::vector<const PieceMemory*> chunks;
  const std::vector<InFlight>* in_flight = nullptr;
  double sequences = 0;  // of all micro-batches
  UnitCounts units;
  // Found when they are first asked for.
  mutable std::vector<std::pair<Exchange, std::vector<StageMoment>>> moments;
};
StageActivations stage_activations(const Scenario& scenario, std::vector<const Piece*> pieces,
                                   const std::vector<const PieceMemory*>& chunks,
                                   const std::vector<InFlight>& in_flight, std::int32_t micro_batches);

// Not for several threads at a time on the same activations.
Bytes peak_of_stage(const Scenario& scenario, const StageActivations& activations, const StateMemory& states);

}  // namespace sim
