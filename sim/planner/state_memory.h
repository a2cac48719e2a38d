// What parameters and their states take of a device, and what passes gather and reduce of them.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/planner/unit_prices.h"

namespace sim {

// A number for each sort of units, bytes or how many of them there are, by place: the embedding's, the
// head's, those of layers of each kind.
using UnitNumbers = std::vector<double>;
using UnitBytes = UnitNumbers;
using UnitCounts = UnitNumbers;
inline constexpr std::size_t kEmbeddingPlace = 0, kHeadPlace = 1;
constexpr std::size_t place_of_layers(std::size_t kind) {
  return 2 + kind;
}
constexpr std::size_t place_of(Unit unit, std::size_t kind) {
  return unit == Unit::embedding ? kEmbeddingPlace : unit == Unit::head ? kHeadPlace : place_of_layers(kind);
}

// Units of a stage, as bits by place.
using UnitSet = std::uint32_t;
constexpr UnitSet at_place(std::size_t place) {
  return UnitSet{1} << place;
}
inline constexpr UnitSet kEmbeddingUnit = at_place(kEmbeddingPlace), kHeadUnit = at_place(kHeadPlace);

// What a stage has once where it has any of these units.
struct OncePerStage {
  UnitSet units = 0;
  double bytes = 0;
  double per_micro_batch = 0;
  bool operator==(const OncePerStage&) const = default;
};

struct StateMemory {
  // Live at all times; `shared` where embedding and head of one stage have it in common.
  UnitBytes always, accumulators;
  double shared = 0, shared_accumulators = 0;
  std::vector<OncePerStage> once;
  UnitBytes whole_gradients;                      // ZeRO 2 and 3: of one micro-batch
  UnitBytes gathered_forward, gathered_backward;  // ZeRO 3
  // What the head uses of the embedding's: a gathered copy, which lives from the first of these two units to
  // the second; a gradient, which the first makes and which is reduced with the second.
  double shared_gathered = 0, shared_gradient = 0;
  UnitBytes optimizer;   // while it updates a unit
  UnitBytes parameters;  // elements
  double shared_parameters = 0;
};
// `states` has the blocks of a step or of make_state_plan(). `passes` has those of a step of the same ranks,
// which say what parameters its passes read.
StateMemory state_memory(const BlockTimes& states, const BlockTimes& passes);

// What lives at all times beside parameters, with these variables: inputs and losses of micro-batches, and
// tables that all layers read.
std::vector<OncePerStage> once_per_stage(const BlockTimes& passes, const Variables& variables);

// For each buffer of a step's plan: whether gradients are added up in it over the step's micro-batches.
std::vector<bool> accumulated_gradients(const Plan& plan, const StepBlocks& blocks);

}  // namespace sim
