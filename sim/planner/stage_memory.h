// Peak memory of a pipeline stage: what passes keep and need (pass_memory.h), of the micro-batches that its
// schedule has in flight, beside parameters and their states (state_memory.h).
#pragma once
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "sim/plan/piece.h"
#include "sim/planner/exchange_memory.h"
#include "sim/planner/in_flight.h"
#include "sim/planner/map_in_turn.h"
#include "sim/planner/pass_memory.h"
#include "sim/planner/state_memory.h"

namespace sim {

// What parameters and their states take of a stage's device memory, in bytes.
struct StageStates {
  double always = 0;
  double updating = 0;       // above that, after the last pass
  double between_steps = 0;  // above `always`: what passes through beside steps
  double copies = 0;         // at all times
  // What passes exchange: all that is gathered and accumulated, and whole gradients of a micro-batch.
  double exchanged = 0, whole_gradients = 0;
};
StageStates stage_states(const Scenario& scenario, const StateMemory& states, const UnitCounts& units);

// The fullest of a pipeline's stages.
class PipelineMemory {
 public:
  // `once`: what stages have once, in a step of so many micro-batches. Refers to all of these.
  PipelineMemory(const std::vector<Piece>& pieces, const std::vector<PieceMemory>& memory,
                 const std::vector<OncePerStage>& once, double micro_batches)
      : pieces_(pieces), memory_(memory), once_(once), micro_batches_(micro_batches) {}
  // A kind of stages, which have these pieces as chunks, and these units. Refers to the chunks.
  void add(std::span<const std::size_t> chunks, UnitCounts units);
  // After all kinds: what is in flight, which it refers to.
  void find_moments(std::span<const std::size_t> kind_of_stage, const StagesInFlight& in_flight);

  // `of_kind(i, units)`: the StageStates of the i-th kind. Keeps what it finds for states
  // that exchange the same: not for several threads at a time.
  template <class OfKind>
  Bytes peak(const Scenario& scenario, const StateMemory& states, const BucketLayers& bucket,
             OfKind of_kind) const {
    const double* const in_passes = most_in_passes(scenario, states, bucket);
    return peak_with(scenario, of_kind,
                     [in_passes](std::size_t i, const StageStates&) { return in_passes[i]; });
  }
  // Bounds of peak(), found sooner: with nothing exchanged, and with everything exchanged at all times.
  struct Bounds {
    Bytes least, most;
  };
  template <class OfKind>
  Bounds bounds(const Scenario& scenario, OfKind of_kind) const {
    const auto least = [this](std::size_t i, const StageStates&) { return kinds_[i].least; };
    const auto most = [this](std::size_t i, const StageStates& s) {
      return kinds_[i].least + s.exchanged * (1 + kinds_[i].between) +
             s.whole_gradients * (1 + kinds_[i].waiting);
    };
    return {peak_with(scenario, of_kind, least), peak_with(scenario, of_kind, most)};
  }

 private:
  struct Moment {
    const InFlight* flight = nullptr;
    std::span<const ChunkInFlight> chunks;
    double kept = 0;  // bytes from pass to pass, without what is exchanged
  };
  struct Kind {
    std::span<const std::size_t> chunks;  // pieces, by their index
    UnitCounts units;
    std::vector<Moment> moments;  // without those that another equals or exceeds in everything
    std::size_t first_alike = 0;  // of the pass and chunk at hand
    double once = 0;              // beside parameters, at all times
    double least = 0;             // of a moment with its pass, without what is exchanged
    double waiting = 0;           // at most, micro-batches for gradients of weights in a moment's chunks
    double between = 0;           // at most, between the model's ends
  };
  template <class OfKind, class InPasses>
  Bytes peak_with(const Scenario& scenario, OfKind of_kind, InPasses in_passes) const {
    double most = 0;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      const StageStates& s = of_kind(i, kinds_[i].units);
      most = std::max(most, s.always + kinds_[i].once + s.copies +
                                std::max({in_passes(i, s), s.updating, s.between_steps}));
    }
    return {std::llround(most + scenario.implementation.memory.context_gib * kGiB)};
  }
  // The most bytes above what always lives, for all kinds one after the other.
  const double* most_in_passes(const Scenario& scenario, const StateMemory& states,
                               const BucketLayers& bucket) const;
  double most_in_passes(const Kind& kind, Exchange exchange, const Scenario& scenario,
                        const StateMemory& states) const;

  const std::vector<Piece>& pieces_;
  const std::vector<PieceMemory>& memory_;
  const std::vector<OncePerStage>& once_;
  double micro_batches_;
  std::vector<Kind> kinds_;
  mutable MapInTurn<Exchange, std::size_t> exchanges_;  // where the first is among:
  mutable std::vector<double> most_;
};

}  // namespace sim
