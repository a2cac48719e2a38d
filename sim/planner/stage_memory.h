// Peak memory of a pipeline stage: what passes keep and need (pass_memory.h), of the micro-batches that its
// schedule has in flight, beside parameters and their states (state_memory.h).
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/planner/exchange_memory.h"
#include "sim/planner/in_flight.h"
#include "sim/planner/pass_memory.h"
#include "sim/planner/piece.h"
#include "sim/planner/state_memory.h"

namespace sim {

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
