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

// A moment at which a stage may be fullest.
struct StageMoment {
  double bytes = 0;  // but for what lives always and accumulated gradients
  UnitCounts begun;  // whose gradients are accumulated
};

// Those of which one is, whatever the states. Where gradients are accumulated all the time, or never, the
// most bytes alone; else moments of which none has both more bytes and more gradients than another.
struct StageMoments {
  double bytes = 0;
  std::vector<StageMoment> begin_gradients;
};

// What parameters and their states take of a stage, in bytes.
struct StageStates {
  double always = 0;         // without what each sequence has
  double per_sequence = 0;   // of all micro-batches
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
};

// The fullest of a pipeline's stages.
class PipelineMemory {
 public:
  // `sequences`: of all micro-batches. Refers to the pieces, and to what the passes over each keep.
  PipelineMemory(const std::vector<Piece>& pieces, const std::vector<PieceMemory>& memory, double sequences)
      : pieces_(pieces), memory_(memory), sequences_(sequences) {}
  // Refers to the stage's chunks and what is in flight.
  void add(StageActivations stage);
  // The most that a stage keeps from pass to pass, and the most micro-batches that wait for gradients of
  // weights. `held`: its most_held().
  struct Fullness {
    double bytes = 0;
    std::int32_t waiting = 0;
  };
  Fullness fullness(std::span<const std::size_t> chunks, std::span<const ChunkInFlight> held) const;

  // `of_stage(i)`: the StageStates of the i-th that was added. Keeps what it finds for states that exchange
  // the same: not for several threads at a time.
  template <class OfStage>
  Bytes peak(const Scenario& scenario, const StateMemory& states, const BucketLayers& bucket,
             OfStage of_stage) const {
    const StageMoments* moments = moments_of(exchange_of(scenario.strategy, bucket), states);
    double most = 0;
    for (std::size_t i = 0; i < stages_.size(); ++i)
      most = std::max(most, peak_of_stage(moments[i], of_stage(i), states));
    return {std::llround(most + scenario.implementation.memory.context_gib * kGiB)};
  }
  const std::vector<StageActivations>& stages() const { return stages_; }

 private:
  static Exchange exchange_of(const Strategy& strategy, const BucketLayers& bucket);
  // All stages, one after the other.
  const StageMoments* moments_of(const Exchange& exchange, const StateMemory& states) const;
  // As kept_, with what is exchanged whole and stays from pass to pass.
  std::span<const double> kept_with(const Exchange& exchange, const StateMemory& states) const;
  // `kept`: of its moments.
  StageMoments moments_of(const StageActivations& stage, std::span<const double> kept,
                          const Exchange& exchange, const StateMemory& states) const;
  double peak_of_stage(const StageMoments& moments, const StageStates& of_stage,
                       const StateMemory& states) const;

  const std::vector<Piece>& pieces_;
  const std::vector<PieceMemory>& memory_;
  double sequences_;
  std::vector<StageActivations> stages_;
  std::vector<double> kept_;  // bytes at each moment of each stage, without what is exchanged
  mutable std::array<std::vector<double>, 4> kept_with_;  // by ZeRO stage, those that have been asked for
  mutable MapInTurn<Exchange, std::size_t> exchanges_;    // where the first stage is among:
  mutable std::vector<StageMoments> moments_;
};

}  // namespace sim
