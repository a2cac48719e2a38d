// Prices of a training step's units of work - embedding, layers of each kind, head - for all strategies that
// run the same blocks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/priced_plan.h"
#include "sim/plan/programs.h"
#include "sim/plan/schedule.h"

namespace sim {

// What of a strategy decides how layers' gradients are put together.
struct Buckets {
  std::int64_t bytes = 0;  // gradient_bucket
  std::string schedule;    // which, with the chunks, says where pieces of the model begin
  int virtual_pipeline = 1;
};

// The time that a block of a step plan takes, found once for each phase.
class BlockTimes {
 public:
  // Prices a whole step's plan, or one that has some of its blocks. Refers to hardware and calibration.
  BlockTimes(StepPlan plan, const Hardware& hardware, const Calibration* calibration)
      : step_(std::move(plan)), hardware_(hardware), calibration_(calibration) {}
  BlockTimes(const BlockTimes&) = delete;
  BlockTimes& operator=(const BlockTimes&) = delete;

  // Nothing, where there is no such block.
  const ActionTime& of(BlockId block, Phase phase, std::int64_t micro_batch_size = 1);
  const Plan& plan() const { return step_.plan; }
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
  const StepBlocks& blocks() const { return step_.blocks; }
  // For the same strategy with other buckets: their messages become those of blocks().
  void set(const Buckets& buckets);
  BucketLayers layers_in(std::int64_t bytes) const;

 private:
  StepPlan step_;
  const Hardware& hardware_;
  const Calibration* calibration_;
  std::optional<BlockPricer> pricer_;          // of some plans only the buffers are looked at
  std::pmr::monotonic_buffer_resource space_;  // all are kept as long as this
  std::pmr::map<std::tuple<BlockId, Phase, std::int64_t>, ActionTime> times_{&space_};
};

// Passes through a layer of a kind, and how a layer lies among those that are recomputed together.
struct LayerTimes {
  ActionTime forward, recompute, recompute_last;  // recompute_last: of the last of a group
  ActionTime backward, input, weight;             // whole; in two parts
};

// Compute of a micro-batch's passes; of backward passes, as the schedules run them that it is found for.
struct ComputeTimes {
  ActionTime embedding, embedding_backward, head, head_backward;
  std::vector<LayerTimes> layers;  // of each kind, in the order of StepBlocks::kinds
};
ComputeTimes compute_times(BlockTimes& blocks, BackwardParts parts, std::int64_t micro_batch_size);

// What is done for a unit's parameters, once a step or once a pass.
using UnitTimes = PerUnit<ActionTime>;
struct StateTimes {
  UnitTimes zero, zero_whole, gather_for_forward, gather_for_backward, gather_updated, unscale, norm, update;
  UnitTimes gradients_to_host, parameters_from_host;
  UnitTimes reduce;     // of gradients: each micro-batch's
  UnitTimes only_last;  // of the last one, beside: what replicas and both directions of a pipeline sum
  BucketLayers bucket;
  std::map<std::int32_t, ActionTime> reduce_layers, reduce_expert_layers;  // messages of so many layers
  ActionTime zero_norm, sum_tied_embedding, read_overflow, sum_norm, clip;
};
// Where layers' gradients go one by one.
StateTimes state_times(BlockTimes& blocks);
// The same with the buckets of the blocks.
void set_bucket_times(BlockTimes& blocks, StateTimes& times);

}  // namespace sim
