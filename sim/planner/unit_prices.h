// Prices of a training step's units of work - embedding, layers of each kind, head - for all strategies that
// run the same blocks.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/cost/priced_plan.h"
#include "sim/plan/programs.h"
#include "sim/plan/schedule.h"

namespace sim {

// The time that a block of a step plan takes, found once for each number of sequences in a micro-batch.
class BlockTimes {
 public:
  // Prices a whole step's plan, or one that has some of its blocks. Refers to hardware and calibration.
  BlockTimes(StepPlan plan, const Hardware& hardware, const Calibration* calibration)
      : step_(std::move(plan)), hardware_(hardware), calibration_(calibration) {}
  BlockTimes(const BlockTimes&) = delete;
  BlockTimes& operator=(const BlockTimes&) = delete;

  // The block's time; nothing where there is no such block. A block belongs to one phase.
  // `begins_gradients`: Variables'.
  ActionTime of(BlockId block, Phase phase, std::int64_t micro_batch_size = 1, bool begins_gradients = false);
  // The time of one message with the gradients of so many units.
  ActionTime message(Unit unit, std::int32_t units);
  // How many layers' gradients go in one message of so many bytes.
  BucketLayers layers_in(std::int64_t bytes) const;
  const Plan& plan() const { return step_.plan; }
  const StepBlocks& blocks() const { return step_.blocks; }
  // The plan with a program of fewer layers than its model's, for as long as visit(plan) takes.
  template <class Visit>
  void with_program(Program program, Visit visit) {
    std::int64_t& layers = step_.plan.scenario.model.num_hidden_layers;
    const std::int64_t own = layers;
    for (const Action& a : program.actions) layers = std::max<std::int64_t>(layers, a.layer);
    step_.plan.programs.push_back(std::move(program));
    visit(std::as_const(step_.plan));
    step_.plan.programs.clear();
    layers = own;
  }

 private:
  StepPlan step_;
  const Hardware& hardware_;
  const Calibration* calibration_;
  std::optional<BlockPricer> pricer_;  // of some plans only the buffers are looked at
  struct OfBatch {
    std::int64_t micro_batch_size = 1;
    bool begins_gradients = false;
    std::vector<std::optional<ActionTime>> blocks;
  };
  std::vector<OfBatch> times_;  // of few sizes
  std::map<std::pair<Unit, std::int32_t>, ActionTime> messages_;
};

// Passes through a layer of a kind, and how a layer lies among those that are recomputed together.
struct LayerTimes {
  ActionTime forward, recompute, recompute_last;  // recompute_last: of the last of a group
  ActionTime backward, input, weight;             // whole; in two parts
  ActionTime backward_first, weight_first;        // where they begin gradients
};

// Compute of a micro-batch's passes. Backward passes are whole or split as the schedules at hand run them.
struct ComputeTimes {
  ActionTime embedding, embedding_backward, head, head_backward;
  ActionTime head_backward_first;  // where it begins gradients
  std::vector<LayerTimes> layers;  // of each kind, in the order of StepBlocks::kinds
};
ComputeTimes compute_times(BlockTimes& blocks, BackwardParts parts, std::int64_t micro_batch_size);

}  // namespace sim
