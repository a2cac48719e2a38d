#include "sim/planner/unit_prices.h"

#include "sim/cost/software.h"
#include "sim/planner/pass_time.h"

namespace sim {

const ActionTime& BlockTimes::of(BlockId block, Phase phase, std::int64_t micro_batch_size) {
  static const ActionTime nothing{};
  if (block < 0) return nothing;
  const auto [it, added] = times_.try_emplace({block, phase, micro_batch_size});
  if (added) {
    if (!pricer_) pricer_.emplace(step_.plan, hardware_, calibration_);
    const Scenario& s = step_.plan.scenario;
    const BlockPricer::Expected expected =
        pricer_->expected(block, phase,
                          {.batch = micro_batch_size,
                           .query_length = s.workload.seq_len / s.strategy.context_parallel,
                           .kv_length = s.workload.seq_len});
    it->second = {expected.duration, expected.host, {}};
  }
  return it->second;
}

BucketLayers BlockTimes::layers_in(std::int64_t bytes) const {
  const StepBlocks& b = step_.blocks;
  const std::int64_t all = step_.plan.scenario.model.num_hidden_layers;
  BucketLayers bucket;
  for (const Unit unit : kLayerUnits)
    if (b.reduce[unit] >= 0) bucket.of(unit) = b.buckets[unit].layers_in(bytes, all);
  return bucket;
}

void BlockTimes::set(const Buckets& buckets) {
  Strategy& s = step_.plan.scenario.strategy;
  s.gradient_bucket = buckets.bytes;
  s.schedule = buckets.schedule;
  s.virtual_pipeline = buckets.virtual_pipeline;
  add_bucket_blocks(step_.plan.scenario, step_);
  if (pricer_) pricer_->add_new_blocks();
}

namespace {

// The block of a place, or of one that there is: where a group ends counts more than where it begins.
BlockId any(const PlacedBlocks& blocks, RecomputePlace place) {
  for (const bool last : {place.last, !place.last})
    for (const bool first : {place.first, !place.first})
      if (const BlockId block = blocks.at({first, last}); block >= 0) return block;
  return -1;
}

}  // namespace

ComputeTimes compute_times(BlockTimes& b, BackwardParts parts, std::int64_t micro_batch_size) {
  const StepBlocks& blocks = b.blocks();
  const auto of = [&](BlockId block, Phase phase) { return b.of(block, phase, micro_batch_size); };
  ComputeTimes times{.embedding = of(blocks.embedding, Phase::forward),
                     .embedding_backward = of(blocks.embedding_backward, Phase::backward),
                     .head = of(blocks.head, Phase::forward),
                     .head_backward = of(blocks.head_backward, Phase::backward),
                     .layers = {}};
  constexpr RecomputePlace alone{true, true}, inner{true, false};
  times.layers.reserve(blocks.layers.size());
  for (const LayerBlocks& layer : blocks.layers) {
    LayerTimes& t = times.layers.emplace_back();
    t.forward = of(any(layer.forward, alone), Phase::forward);
    t.recompute = of(any(layer.recompute, inner), Phase::recompute);
    t.recompute_last = of(any(layer.recompute, alone), Phase::recompute);
    if (parts != BackwardParts::all_split) t.backward = of(any(layer.backward, alone), Phase::backward);
    if (parts != BackwardParts::whole) {
      t.input = of(any(layer.backward_input, alone), Phase::backward);
      t.weight = of(layer.weight, Phase::backward);
    }
  }
  return times;
}

StateTimes state_times(BlockTimes& b) {
  const StepBlocks& blocks = b.blocks();
  const auto units = [&](const UnitBlocks& u, Phase phase) {
    UnitTimes times;
    for (const Unit unit : kUnits) times[unit] = b.of(u[unit], phase);
    return times;
  };
  const auto each = [](const UnitTimes& x, const UnitTimes& y) {
    UnitTimes both;
    for (const Unit unit : kUnits) both[unit] = in_turn(x[unit], y[unit]);
    return both;
  };
  StateTimes t{.zero = units(blocks.zero, Phase::optimizer),
               .zero_whole = units(blocks.zero_whole, Phase::backward),
               .gather_for_forward = units(blocks.gather_for_forward, Phase::forward),
               .gather_for_backward = units(blocks.gather_for_backward, Phase::backward),
               .gather_updated = units(blocks.gather_updated, Phase::optimizer),
               .unscale = units(blocks.unscale, Phase::optimizer),
               .norm = units(blocks.norm, Phase::optimizer),
               .update = units(blocks.update, Phase::optimizer),
               .gradients_to_host = units(blocks.gradients_to_host, Phase::optimizer),
               .parameters_from_host = units(blocks.parameters_from_host, Phase::optimizer),
               .reduce = units(blocks.reduce, Phase::backward),
               .only_last = each(units(blocks.reduce_replicas, Phase::backward),
                                 units(blocks.reduce_directions, Phase::backward)),
               .bucket = {},
               .reduce_layers = {},
               .reduce_expert_layers = {},
               .zero_norm = b.of(blocks.zero_norm, Phase::optimizer),
               .sum_tied_embedding = b.of(blocks.sum_tied_embedding, Phase::optimizer),
               .read_overflow = b.of(blocks.read_overflow, Phase::optimizer),
               .sum_norm = b.of(blocks.sum_norm, Phase::optimizer),
               .clip = b.of(blocks.clip, Phase::optimizer)};
  for (const Unit unit : kUnits)
    t.gather_for_forward[unit].work = t.gather_for_backward[unit].work =
        work_before_gather(b.plan().scenario);
  return t;
}

void set_bucket_times(BlockTimes& b, StateTimes& t) {
  const StepBlocks& blocks = b.blocks();
  t.bucket = blocks.bucket();
  t.reduce_layers.clear();
  t.reduce_expert_layers.clear();
  for (const auto& [n, block] : blocks.buckets.layer.reduce)
    t.reduce_layers[n] = b.of(block, Phase::backward);
  for (const auto& [n, block] : blocks.buckets.expert_layer.reduce)
    t.reduce_expert_layers[n] = b.of(block, Phase::backward);
}

}  // namespace sim
