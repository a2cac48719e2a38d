#include "sim/planner/unit_prices.h"

#include <algorithm>

namespace sim {

ActionTime BlockTimes::of(BlockId block, Phase phase, std::int64_t micro_batch_size, bool begins_gradients) {
  if (block < 0) return {};
  const auto found = std::ranges::find_if(times_, [&](const OfBatch& of) {
    return of.micro_batch_size == micro_batch_size && of.begins_gradients == begins_gradients;
  });
  OfBatch& of_batch =
      found != times_.end() ? *found : times_.emplace_back(OfBatch{micro_batch_size, begins_gradients, {}});
  std::vector<std::optional<ActionTime>>& times = of_batch.blocks;
  if (times.size() < step_.plan.blocks.size()) times.resize(step_.plan.blocks.size());
  std::optional<ActionTime>& known = times[static_cast<std::size_t>(block)];
  if (known) return *known;
  if (!pricer_) pricer_.emplace(step_.plan, hardware_, calibration_);
  const Scenario& s = step_.plan.scenario;
  const BlockPricer::Expected expected =
      pricer_->expected(block, phase,
                        {.batch = micro_batch_size,
                         .query_length = s.workload.seq_len / s.strategy.context_parallel,
                         .kv_length = s.workload.seq_len,
                         .begins_gradients = begins_gradients});
  return known.emplace(ActionTime{expected.duration, expected.host, {}});
}

ActionTime BlockTimes::message(Unit unit, std::int32_t units) {
  const auto [known, added] = messages_.try_emplace({unit, units});
  if (!added) return known->second;
  const BlockId block = bucket_block(step_, unit, units);
  if (pricer_) pricer_->add_new_blocks();
  return known->second = of(block, Phase::backward);
}

BucketLayers BlockTimes::layers_in(std::int64_t bytes) const {
  const StepBlocks& b = step_.blocks;
  const std::int64_t all = step_.plan.scenario.model.num_hidden_layers;
  BucketLayers bucket;
  for (const Unit unit : kLayerUnits)
    if (b.reduce[unit] >= 0) bucket[unit] = b.buckets[unit].layers_in(bytes, all);
  return bucket;
}

namespace {

// The block of a place, or of another place that has one: a group's end counts more than its beginning.
BlockId any(const PlacedBlocks& blocks, RecomputePlace place) {
  for (const bool last : {place.last, !place.last})
    for (const bool first : {place.first, !place.first})
      if (const BlockId block = blocks.at({first, last}); block >= 0) return block;
  return -1;
}

}  // namespace

ComputeTimes compute_times(BlockTimes& b, BackwardParts parts, std::int64_t micro_batch_size) {
  const StepBlocks& blocks = b.blocks();
  const bool writes = products_write_gradients(b.plan().scenario);
  const auto of = [&](BlockId block, Phase phase) { return b.of(block, phase, micro_batch_size); };
  const auto first = [&](BlockId block) { return b.of(block, Phase::backward, micro_batch_size, writes); };
  ComputeTimes times{.embedding = of(blocks.embedding, Phase::forward),
                     .embedding_backward = of(blocks.embedding_backward, Phase::backward),
                     .head = of(blocks.head, Phase::forward),
                     .head_backward = of(blocks.head_backward, Phase::backward),
                     .head_backward_first = first(blocks.head_backward),
                     .layers = {}};
  constexpr RecomputePlace alone{true, true}, inner{true, false};
  times.layers.reserve(blocks.layers.size());
  for (const LayerBlocks& layer : blocks.layers) {
    LayerTimes& t = times.layers.emplace_back();
    t.forward = of(any(layer.forward, alone), Phase::forward);
    t.recompute = of(any(layer.recompute, inner), Phase::recompute);
    t.recompute_last = of(any(layer.recompute, alone), Phase::recompute);
    if (parts != BackwardParts::all_split) {
      t.backward = of(any(layer.backward, alone), Phase::backward);
      t.backward_first = first(any(layer.backward, alone));
    }
    if (parts != BackwardParts::whole) {
      t.input = of(any(layer.backward_input, alone), Phase::backward);
      t.weight = of(layer.weight, Phase::backward);
      t.weight_first = first(layer.weight);
    }
  }
  return times;
}

}  // namespace sim
