// What the passes of a micro-batch over a piece of the model keep and need: what each of their steps adds is
// read off the lives of buffers in programs of a few layers and two micro-batches, and repeated for as many
// layers as the piece has.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/plan/pass_steps.h"
#include "sim/plan/piece.h"
#include "sim/plan/schedule.h"
#include "sim/planner/map_in_turn.h"
#include "sim/planner/state_memory.h"
#include "sim/planner/unit_prices.h"

namespace sim {

// Bytes that a step adds at most (`most`) and leaves behind (`left`). `reads` has the most in each part of a
// step, while the parameters yet to be read are `share` of the bytes that its block reads: from all to none.
struct StepChange {
  struct WhileReading {
    double share = 0, most = 0;
  };
  double most = 0, left = 0;
  bool is_there = false;
  std::vector<WhileReading> reads{};
};

// A block that a pass runs for a unit of a piece.
struct PassStep {
  std::size_t place = 0;               // of the unit among UnitNumbers
  bool recomputes = false;             // runs forward again
  bool is_first_of_unit = false;       // in the pass
  double begin = 0, most = 0;          // bytes above those at the pass's begin
  const StepChange* change = nullptr;  // above its own begin
};

// What is gathered and reduced beside passes: the ZeRO stage from 2 on, units gathered ahead, layers reduced
// together, and whether the stage has both embedding and head, which may share their weight. Sizes of what is
// exchanged whole do not depend on how many ranks share it.
struct Exchange {
  int zero_stage = 0, prefetch = 0;
  std::int32_t layers = 1, expert_layers = 1;
  bool both_ends = false;
  const StateMemory* begun = nullptr;  // whose accumulated gradients begin with the pass
  bool operator==(const Exchange&) const = default;
};

// Bytes, without parameters, their states and accumulated gradients. Refers to the PassMemory that found it.
struct PieceMemory {
  std::int32_t units = 0;
  double kept = 0;             // from forward to backward
  double kept_for_weight = 0;  // from the backward pass of inputs to that of weights
  double carried_back = 0;     // the gradient of the residual stream, which is one buffer for all chunks
  EnumArray<Pass, std::vector<PassStep>> passes;  // in order; empty where the schedule has none
  EnumArray<Pass, double> most{};                 // at any step of each
  // As they are asked for: the most with exchanges beside it (exchange_memory.h), and the steps of units with
  // gradients in such buckets.
  mutable EnumArray<Pass, MapInTurn<Exchange, double>> with_exchanges;
  mutable EnumArray<Pass, MapInTurn<BucketLayers, std::vector<UnitStep>>> units_with;
};

// Finds the PieceMemory of pieces of any size. What a layer adds follows from
// its place: whether it is the piece's first or last, and where it lies among those that are recomputed
// together. Pieces of a few layers have layers in all of these places.
class PassMemory {
 public:
  // Writes programs of the blocks, which it refers to, as it is asked for pieces: not by several threads at a
  // time.
  explicit PassMemory(BlockTimes& blocks);
  ~PassMemory();
  PassMemory(const PassMemory&) = delete;
  PassMemory& operator=(const PassMemory&) = delete;
  // With the scenario's recomputation, schedule and sequences of a micro-batch.
  PieceMemory of(const Piece& piece, const Scenario& scenario) const;
  // What a stage has beside parameters at all times, with so many sequences in a micro-batch.
  const std::vector<OncePerStage>& once_per_stage(std::int64_t sequences) const;

 private:
  class Tracer;

  std::unique_ptr<Tracer> tracer_;
};

}  // namespace sim
