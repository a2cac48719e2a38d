// What a pass of a micro-batch does over a piece of the model, unit by unit. This is the one place that says
// in which order units run, which run forward again before their backward pass, and when their gradients go:
// stage programs expand it into actions, the planner composes times and memory of it.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "sim/plan/piece.h"
#include "sim/plan/schedule.h"
#include "sim/plan/step_blocks.h"

namespace sim {

// `count` units alike, one after the other.
struct UnitStep {
  Unit unit{};
  std::int32_t kind = 0;       // of layers: which of StepBlocks::kinds
  std::int32_t layer = 0;      // the first of them, counted from the piece's first
  std::int32_t direction = 1;  // to the next layer
  std::int32_t count = 1;
  bool reads = false;       // no step of the pass has read the unit's parameters before
  bool recomputes = false;  // runs forward again, where that leaves anything to do
  bool ends_group = false;  // is the last of those that are recomputed from one kept input
  bool works = false;       // does the pass's own work
  bool reduces = false;     // leaves gradients that are to be reduced
  // Gradients go in messages of so many units, the first of which has `waiting` units from before this step.
  // 0: none goes with it.
  std::int32_t bucket = 0, waiting = 0;
  // Units of this sort whose gradients go now, in one message: such a step does nothing else.
  std::int32_t flushed = 0;
};

// Whether a schedule with such backward passes has any of these.
constexpr bool has_pass(BackwardParts parts, Pass pass) {
  if (pass == Pass::forward) return true;
  return parts != (pass == Pass::backward ? BackwardParts::all_split : BackwardParts::whole);
}

// Which gradients a pass reduces: those of layers, and those of embedding and head.
struct Reduced {
  bool layers = false, ends = false;
};

// Sets `into` to the steps of a pass. A bucket's gradients go when it is full, when a unit of another sort
// has gradients, and at the end of the pass. `pass` is the whole of a backward pass or one of its parts: that
// of inputs has no gradients of layers, that of weights nothing but these.
void set_pass_steps(const Scenario& scenario, const Piece& piece, Pass pass, Reduced reduced,
                    const BucketLayers& bucket, std::vector<UnitStep>& into);

// gradients_of(): which gradients of a piece a pass has. defers_embedding(): whether the tied embedding's are
// not reduced with the pass, because micro-batches of the other direction also add to them.
Reduced gradients_of(Pass pass);
bool defers_embedding(const Scenario& scenario);

// Whether gradients are reduced beside the backward pass that ends them, not after all passes.
bool reduces_beside(const Scenario& scenario);
// Whether parameters that the optimizer of the step before updated are gathered beside the first forward
// pass.
bool gathers_ahead(const Scenario& scenario);

// What a stage computes after its last pass and the reductions, before it updates its units: one block, or
// one for each of its units.
struct OnceStep {
  BlockId block = -1;
  const UnitBlocks* units = nullptr;
  bool at_an_end = false;  // of the pipeline's first and last stage alone
};
// In order; refers to the blocks.
std::array<OnceStep, 7> steps_before_update(const StepBlocks& blocks);

}  // namespace sim
