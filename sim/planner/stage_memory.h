// Peak memory of a pipeline stage: what passes keep and need (pass_memory.h), of the micro-batches that its
// schedule has in flight, beside parameters and their states (state_memory.h).
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sim/plan/piece.h"
#include "sim/planner/exchange_memory.h"
#include "sim/planner/in_flight.h"
#include "sim/planner/map_in_turn.h"
#include "sim/planner/pass_memory.h"
#include "sim/planner/state_memory.h"

namespace sim {

// What parameters and their states take of a stage, in bytes.
struct StageStates {
  double always = 0;
  double updating = 0;       // above that, after the last pass
  double between_steps = 0;  // above `always`: what passes through beside steps
  double copies = 0;         // at all times
};
StageStates stage_states(const Scenario& scenario, const StateMemory& states, const UnitCounts& units);

// What a stage's activations make of it.
struct StageActivations {
  std::span<const std::size_t> chunks;  // pieces, by their index among the pipeline's
  const StageInFlight* in_flight = nullptr;
  UnitCounts units;
  double once = 0;  // what it has beside parameters at all times
};

// The fullest of a pipeline's stages.
class PipelineMemory {
 public:
  // `once`: what stages have once, in a step of so many micro-batches. Refers to all of these.
  PipelineMemory(const std::vector<Piece>& pieces, const std::vector<PieceMemory>& memory,
                 const std::vector<OncePerStage>& once, double micro_batches)
      : pieces_(pieces), memory_(memory), once_(once), micro_batches_(micro_batches) {}
  // Refers to the stage's chunks and what is in flight.
  void add(StageActivations stage);
  // The most that a stage takes for activations, and the most micro-batches that wait for gradients of
  // weights; and no less than these, found sooner.
  struct Fullness {
    double bytes = 0;
    std::int32_t waiting = 0;
  };
  Fullness fullness(std::span<const std::size_t> chunks, const StageInFlight& in_flight) const;
  Fullness fullness(std::span<const std::size_t> chunks, const MostHeld& held) const;

  // `of_stage(i)`: the StageStates of the i-th that was added. Keeps what it finds for states that exchange
  // the same: not for several threads at a time.
  template <class OfStage>
  Bytes peak(const Scenario& scenario, const StateMemory& states, const BucketLayers& bucket,
             OfStage of_stage) const {
    const double* const in_passes = most_in_passes(scenario, states, bucket);
    double most = 0;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const StageStates& s = of_stage(i);
      most = std::max(most, s.always + stages_[i].once + s.copies +
                                std::max({in_passes[i], s.updating, s.between_steps}));
    }
    return {std::llround(most + scenario.implementation.memory.context_gib * kGiB)};
  }
  const std::vector<StageActivations>& stages() const { return stages_; }

 private:
  // What a stage keeps while a pass of a moment goes on; `held`: by its chunks.
  double kept_at(std::span<const std::size_t> chunks, const InFlight& moment,
                 std::span<const ChunkInFlight> held) const;
  // For all stages, one after the other: above what lives always.
  const double* most_in_passes(const Scenario& scenario, const StateMemory& states,
                               const BucketLayers& bucket) const;
  // `kept`: at each of its moments, from pass to pass.
  double most_in_passes(const StageActivations& stage, const double* kept, Exchange exchange,
                        const Scenario& scenario, const StateMemory& states) const;

  const std::vector<Piece>& pieces_;
  const std::vector<PieceMemory>& memory_;
  const std::vector<OncePerStage>& once_;
  double micro_batches_;
  std::vector<StageActivations> stages_;
  std::vector<double> kept_;  // bytes at each moment of each stage, without what is exchanged
  mutable MapInTurn<Exchange, std::size_t> exchanges_;  // where the first stage is among:
  mutable std::vector<double> most_;
};

}  // namespace sim
