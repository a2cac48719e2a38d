#include "sim/planner/state_memory.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "sim/plan/memory.h"

namespace sim {

std::vector<bool> accumulated_gradients(const Plan& plan, const StepBlocks& blocks) {
  std::vector<bool> accumulates(plan.buffers.size());
  for (const BlockId b : blocks.zero)
    if (b >= 0)
      for (const Operation& op : plan.block(b).operations)
        for (const Operand& o : op.operands)
          if (o.buffer != kNoBuffer) accumulates[static_cast<std::size_t>(plan.storage(o.buffer))] = true;
  return accumulates;
}

namespace {

Variables of_one_sequence(const Scenario& s) {
  return {.batch = 1,
          .query_length = s.workload.seq_len / s.strategy.context_parallel,
          .kv_length = s.workload.seq_len};
}

bool lives_always(const Buffer& b) {
  return b.lifetime == Lifetime::plan || b.lifetime == Lifetime::first_use;
}

// Marks the storage that a block's operations use as used by these units.
void mark(const Plan& plan, BlockId block, UnitSet units, std::vector<UnitSet>& users) {
  if (block < 0) return;
  for (const Operation& op : plan.block(block).operations)
    for (const auto* operands : {&op.operands, &op.beside})
      for (const Operand& o : *operands)
        if (o.buffer != kNoBuffer) users[static_cast<std::size_t>(plan.storage(o.buffer))] |= units;
}

std::vector<UnitSet> users_in_passes(const Plan& plan, const StepBlocks& blocks) {
  std::vector<UnitSet> users(plan.buffers.size());
  for (const BlockId b : {blocks.embedding, blocks.embedding_backward}) mark(plan, b, kEmbeddingUnit, users);
  for (const BlockId b : {blocks.head, blocks.head_backward}) mark(plan, b, kHeadUnit, users);
  for (std::size_t k = 0; k < blocks.layers.size(); ++k) {
    const LayerBlocks& layer = blocks.layers[k];
    const UnitSet units = at_place(place_of_layers(k));
    mark(plan, layer.weight, units, users);
    for (const PlacedBlocks* placed :
         {&layer.forward, &layer.recompute, &layer.backward, &layer.backward_input})
      for (const bool first : {false, true})
        for (const bool last : {false, true})
          mark(plan, placed->at({.first = first, .last = last}), units, users);
  }
  return users;
}

void add_once(std::vector<OncePerStage>& all, UnitSet units, double bytes, bool per_micro_batch) {
  const auto same = std::ranges::find_if(all, [&](const OncePerStage& o) { return o.units == units; });
  OncePerStage& once = same != all.end() ? *same : all.emplace_back(OncePerStage{.units = units});
  (per_micro_batch ? once.per_micro_batch : once.bytes) += bytes;
}

}  // namespace

std::vector<OncePerStage> once_per_stage(const BlockTimes& passes, const Variables& variables) {
  std::vector<OncePerStage> once;
  const Plan& plan = passes.plan();
  const std::vector<UnitSet> users = users_in_passes(plan, passes.blocks());
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    const bool of_parameters = b.buffer_class == BufferClass::parameter ||
                               b.buffer_class == BufferClass::gradient ||
                               b.buffer_class == BufferClass::optimizer;
    if (users[i] == 0 || of_parameters || !lives_always(b) || b.on_host || b.view_of != kNoBuffer ||
        b.buffer_class == BufferClass::scratch)
      continue;
    add_once(once, users[i], static_cast<double>(aligned(b.memory(variables)).value), b.per_micro_batch);
  }
  return once;
}

namespace {

// What a head's backward pass gathers but does not read is freed at once. For a module that predicts further
// tokens this is the embedding, whose backward pass reads no parameter.
double gathered_unread(const BlockTimes& states, const BlockTimes& passes) {
  const BlockId gathers = states.blocks().gather_for_backward[Unit::head],
                reads = passes.blocks().head_backward;
  if (gathers < 0 || reads < 0) return 0;
  std::vector<std::string_view> read;
  for (const Operation& op : passes.plan().block(reads).operations)
    for (const Operand& o : op.operands)
      if (o.buffer != kNoBuffer) read.push_back(passes.plan().buffer(passes.plan().storage(o.buffer)).name);
  const auto is_read = [&](const Buffer& b) { return std::ranges::find(read, b.name) != read.end(); };
  double bytes = 0;
  const Plan& plan = states.plan();
  for (const Operation& op : plan.block(gathers).operations)
    for (std::size_t i = 0; i + 1 < op.operands.size(); i += 2) {  // whole, then the rank's own part
      const Buffer& whole = plan.buffer(op.operands[i].buffer);
      const Buffer& own = plan.buffer(op.operands[i + 1].buffer);
      if (!is_read(whole) && !is_read(own))
        bytes += static_cast<double>(aligned(whole.bytes(of_one_sequence(plan.scenario))).value);
    }
  return bytes;
}

}  // namespace

StateMemory state_memory(const BlockTimes& states, const BlockTimes& passes) {
  const Plan& plan = states.plan();
  const StepBlocks& blocks = states.blocks();
  const Variables variables = of_one_sequence(plan.scenario);
  // By place.
  std::vector<Unit> places{Unit::embedding, Unit::head};
  for (const LayerKind& kind : blocks.kinds) places.push_back(kind.unit());
  std::vector<UnitSet> users(plan.buffers.size());
  for (std::size_t p = 0; p < places.size(); ++p) {
    for (const BufferId b : blocks.parameters[places[p]])
      if (b != kNoBuffer) users[static_cast<std::size_t>(plan.storage(b))] |= at_place(p);
    for (const UnitBlocks* u : {&blocks.zero, &blocks.zero_whole, &blocks.reduce, &blocks.gather_for_forward,
                                &blocks.gather_updated, &blocks.norm, &blocks.update})
      mark(plan, (*u)[places[p]], at_place(p), users);
  }

  const std::vector<bool> begun = accumulated_gradients(plan, blocks);
  StateMemory m;
  for (UnitBytes* u : {&m.always, &m.accumulators, &m.whole_gradients, &m.gathered_forward,
                       &m.gathered_backward, &m.optimizer, &m.parameters})
    u->resize(places.size());
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    if (b.on_host || b.view_of != kNoBuffer || users[i] == 0 || b.buffer_class == BufferClass::scratch)
      continue;
    const double bytes = static_cast<double>(aligned(b.memory(variables)).value);
    const bool always = lives_always(b);
    if (!always && !begun[i]) continue;
    UnitBytes& units = always ? m.always : m.accumulators;
    const bool is_parameter = b.buffer_class == BufferClass::parameter && b.lifetime == Lifetime::plan;
    const double elements = is_parameter ? static_cast<double>(b.elements({})) : 0;
    constexpr UnitSet kEnds = kEmbeddingUnit | kHeadUnit;
    if (!b.per_layer && (users[i] & ~kEnds)) {
      add_once(m.once, users[i], bytes, false);
      continue;
    }
    for (std::size_t p = 0; p < places.size(); ++p) {
      const bool counts = (p == kEmbeddingPlace || p == kHeadPlace) != b.per_layer;
      if (!counts || !(users[i] & at_place(p))) continue;
      units[p] += bytes;
      m.parameters[p] += elements;
    }
    if (!b.per_layer && (users[i] & kEnds) == kEnds) {
      (always ? m.shared : m.shared_accumulators) += bytes;
      m.shared_parameters += elements;
    }
  }

  // The bytes that a block writes and that do not live always. `also`: only what these units use, too.
  std::vector<BufferId> seen;
  const auto passing = [&](BlockId block, bool scratch, UnitSet also = 0) {
    double bytes = 0;
    if (block < 0) return bytes;
    seen.clear();
    for (const Operation& op : plan.block(block).operations)
      for (const auto* operands : {&op.operands, &op.beside})
        for (const Operand& o : *operands) {
          if (o.buffer == kNoBuffer) continue;
          const BufferId storage = plan.storage(o.buffer);
          const Buffer& b = plan.buffer(storage);
          const bool is_passing = scratch ? b.buffer_class == BufferClass::scratch
                                          : b.lifetime == Lifetime::uses || b.lifetime == Lifetime::pass;
          if (!is_passing || b.on_host || begun[static_cast<std::size_t>(storage)] ||
              (!scratch && o.access == Access::read) ||
              (users[static_cast<std::size_t>(storage)] & also) != also ||
              std::ranges::find(seen, storage) != seen.end())
            continue;
          seen.push_back(storage);
          bytes += static_cast<double>(aligned(b.memory(variables)).value);
        }
    return bytes;
  };
  const auto units = [&](UnitBytes& to, const UnitBlocks& u, bool scratch) {
    for (std::size_t p = 0; p < places.size(); ++p) to[p] = std::max(to[p], passing(u[places[p]], scratch));
  };
  units(m.whole_gradients, blocks.zero_whole, false);
  units(m.gathered_forward, blocks.gather_for_forward, false);
  units(m.gathered_backward, blocks.gather_for_backward, false);
  m.gathered_backward[kHeadPlace] -= gathered_unread(states, passes);
  for (const UnitBlocks* u : {&blocks.norm, &blocks.update, &blocks.unscale, &blocks.gradients_to_host})
    units(m.optimizer, *u, true);
  m.shared_gathered = passing(blocks.gather_for_forward[Unit::embedding], false, kHeadUnit);
  m.shared_gradient = passing(blocks.zero_whole[Unit::head], false, kEmbeddingUnit);
  return m;
}

}  // namespace sim
