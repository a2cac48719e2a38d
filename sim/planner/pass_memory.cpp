#include "sim/planner/pass_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/plan/memory.h"
#include "sim/plan/recompute.h"
#include "sim/plan/stage_program.h"
#include "sim/planner/state_memory.h"

namespace sim {
namespace {

bool is_of_weights(const Block& block) {
  return block.name.find(".backward_weight") != std::string::npos;
}

std::size_t index(Pass pass) {
  return static_cast<std::size_t>(pass);
}

bool is_one_of(const UnitBlocks& blocks, BlockId block) {
  return block == blocks.embedding || block == blocks.layer || block == blocks.expert_layer ||
         block == blocks.head;
}

// Of each block, how many operations there are until its parameters have been read.
std::vector<OpTime> last_reads_of_parameters(const Plan& plan) {
  std::vector<OpTime> last;
  for (const Block& block : plan.blocks) {
    last.push_back(0);
    for (std::size_t i = 0; i < block.operations.size(); ++i)
      for (const Operand& o : block.operations[i].operands)
        if (o.buffer != kNoBuffer &&
            plan.buffers[static_cast<std::size_t>(plan.storage(o.buffer))].buffer_class ==
                BufferClass::parameter)
          last.back() = static_cast<OpTime>(i) + 1;
  }
  return last;
}

// Live bytes without accumulated gradients, at times that ascend.
class LiveBytes {
 public:
  LiveBytes(const Plan& plan, const MemoryPlan& memory, const std::vector<bool>& accumulates)
      : timeline_(memory_timeline(plan, memory)),
        accumulated_(static_cast<std::size_t>(memory.duration) + 1),
        ending_(static_cast<std::size_t>(memory.duration) + 1) {
    for (const Instance& i : memory.instances) {
      const auto bytes = static_cast<double>(aligned(i.bytes).value);
      const bool is_scratch =
          plan.buffers[static_cast<std::size_t>(i.buffer)].buffer_class == BufferClass::scratch;
      if (accumulates[static_cast<std::size_t>(i.buffer)]) {
        accumulated_[static_cast<std::size_t>(i.first)] += bytes;
        accumulated_[static_cast<std::size_t>(i.last) + 1] -= bytes;
      } else if (!is_scratch) {
        ending_[static_cast<std::size_t>(i.last) + 1] += bytes;
      }
    }
  }
  // The most from here to `end`; no less than zero.
  double most_until(OpTime end) {
    double most = 0;
    for (; time_ < end; ++time_) {
      begun_ += accumulated_[static_cast<std::size_t>(time_)];
      for (; point_ < timeline_.size() && timeline_[point_].time <= time_; ++point_) {
        const MemoryByClass& bytes = timeline_[point_].bytes;
        total_ = static_cast<double>(total(bytes).value);
        scratch_ = static_cast<double>(bytes[static_cast<std::size_t>(BufferClass::scratch)].value);
      }
      most = std::max(most, total_ - begun_);
    }
    return most;
  }
  // What outlives the operations so far.
  double left() const { return total_ - scratch_ - begun_ - ending_[static_cast<std::size_t>(time_)]; }

 private:
  std::vector<MemoryPoint> timeline_;
  std::vector<double> accumulated_, ending_;  // changes, by time
  std::size_t point_ = 0;
  OpTime time_ = 0;
  double total_ = 0, scratch_ = 0, begun_ = 0;
};

}  // namespace

void PassMemory::trace(const Shape& shape, std::int32_t layers, std::int64_t sequences, bool splits,
                       Traced& traced) {
  // A model of one kind of layer, and a stage of it with or without neighbours: two micro-batches go forward,
  // then backward. What the second one changes is found.
  const Plan& plan = blocks_.plan();
  const StepBlocks& blocks = blocks_.blocks();
  Scenario few = plan.scenario;
  Strategy& t = few.strategy;
  const bool neighbours = !shape.first || !shape.last;
  const std::int32_t stages = neighbours ? 3 : 1;
  const std::int32_t stage = shape.first ? 0 : shape.last ? stages - 1 : 1;
  const LayerKind kind = blocks.kinds[shape.kind];
  few.model.num_hidden_layers = layers * stages;
  few.model.moe.first_k_dense_replace = kind.experts ? 0 : few.model.num_hidden_layers;
  few.model.moe.decoder_sparse_step = 1;
  few.model.sliding_window_pattern = 0;
  if (!kind.window) few.model.sliding_window = 0;
  few.implementation.pipeline.balances_head = false;
  few.workload.micro_batch_size = sequences;
  t.pipeline_parallel = stages;
  t.virtual_pipeline = 1;
  if (t.recompute == Recompute::full) t.recompute_interval = shape.interval;
  std::vector<Slot> slots{{Pass::forward, 0}, {Pass::forward, 1}};
  if (splits)
    for (const Pass pass : {Pass::backward_input, Pass::backward_weight})
      for (const std::int32_t m : {0, 1}) slots.push_back({pass, m});
  else
    for (const std::int32_t m : {0, 1}) slots.push_back({Pass::backward, m});
  const Schedule schedule{
      .stages = stages, .chunks = 1, .micro_batches = 2, .slots = {static_cast<std::size_t>(stages), slots}};
  const std::int32_t first_layer = layers * stage;
  for (TracedPass& pass : traced) {
    pass.layers.resize(static_cast<std::size_t>(layers));
    pass.recomputed.resize(static_cast<std::size_t>(layers));
  }

  blocks_.with_program(stage_program(few, blocks, schedule, stage), [&](const Plan& with) {
    const MemoryPlan memory = plan_memory(with, 0, Addresses::none);
    const std::vector<OpTime> times = action_times(with);
    const std::vector<Action>& actions = with.programs.front().actions;
    LiveBytes live(with, memory, accumulated_gradients(with, blocks));
    const std::vector<OpTime> last_read = last_reads_of_parameters(with);
    Change ignored;
    Change* step = nullptr;
    std::size_t pass = 0;
    double before = 0, most = 0, reading = 0;  // of the step at hand
    const auto end_step = [&] {
      if (step)
        *step = {std::max(0.0, most - before), std::max(0.0, reading - before), live.left() - before, true};
      step = nullptr;
      before = live.left();
      most = reading = 0;
    };
    for (std::size_t a = 0; a < actions.size(); ++a) {
      const Action& action = actions[a];
      const bool computes = action.stream == kComputeStream && action.peer < 0;
      const bool forward = action.phase == Phase::forward;
      // Where a step begins: what is received and begun for it belongs to it, what is sent and reduced after
      // it to the one before.
      const bool begins_pass = action.peer >= 0 && action.stream == kComputeStream;
      if (begins_pass || action.phase == Phase::optimizer) end_step();
      if (computes && action.phase != Phase::optimizer) {
        pass = index(forward   ? Pass::forward
                     : !splits ? Pass::backward
                     : is_of_weights(with.blocks[static_cast<std::size_t>(action.block)])
                         ? Pass::backward_weight
                         : Pass::backward_input);
        TracedPass& of = traced[pass];
        const bool is_embedding =
            action.block == blocks.embedding || action.block == blocks.embedding_backward;
        const bool is_head = action.block == blocks.head || action.block == blocks.head_backward;
        if (step) end_step();
        if (!is_one_of(blocks.zero, action.block)) {
          const auto layer = static_cast<std::size_t>(action.layer - first_layer);
          step = action.micro_batch == 0            ? &ignored
                 : is_embedding                     ? &of.embedding
                 : is_head                          ? &of.head
                 : action.phase == Phase::recompute ? &of.recomputed[layer]
                                                    : &of.layers[layer];
        }
      }
      const OpTime read = times[a] + last_read[static_cast<std::size_t>(action.block)];
      most = std::max(most, live.most_until(read));
      if (computes) reading = std::max(reading, most);
      most = std::max(most, live.most_until(times[a + 1]));
    }
    end_step();
  });
}

PassMemory::Change PassMemory::between(const Change& few, const Change& more, double share) {
  const auto at = [share](double a, double b) { return a + (b - a) * share; };
  return {at(few.most, more.most), at(few.reading, more.reading), at(few.left, more.left), few.is_there};
}

const PassMemory::Traced& PassMemory::traced(const Shape& shape, std::int32_t layers,
                                             std::int64_t sequences) {
  const auto [it, added] = traced_.try_emplace({shape, layers, sequences});
  if (!added) return it->second;
  const BackwardParts parts = backward_parts(blocks_.plan().scenario.strategy.schedule);
  if (parts != BackwardParts::all_split) trace(shape, layers, sequences, false, it->second);
  if (parts != BackwardParts::whole) trace(shape, layers, sequences, true, it->second);
  return it->second;
}

// Activations grow with the sequences of a micro-batch, gradients beside them do not.
PassMemory::Traced PassMemory::of_sequences(const Shape& shape, std::int32_t layers, std::int64_t sequences) {
  const std::int64_t few = blocks_.plan().scenario.workload.micro_batch_size > 1 ? 2 : 1;
  if (sequences <= 2 * few) return traced(shape, layers, sequences);
  const Traced &of_few = traced(shape, layers, few), &of_more = traced(shape, layers, 2 * few);
  const double share = static_cast<double>(sequences - few) / static_cast<double>(few);
  Traced of_all;
  for (std::size_t p = 0; p < of_all.size(); ++p) {
    const TracedPass &a = of_few[p], &b = of_more[p];
    TracedPass& all = of_all[p];
    all.embedding = between(a.embedding, b.embedding, share);
    all.head = between(a.head, b.head, share);
    for (std::size_t l = 0; l < a.layers.size(); ++l) {
      all.layers.push_back(between(a.layers[l], b.layers[l], share));
      all.recomputed.push_back(between(a.recomputed[l], b.recomputed[l], share));
    }
  }
  return of_all;
}

PieceMemory PassMemory::of(const Piece& piece, const Strategy& strategy, std::int64_t sequences) {
  const std::int32_t layers = piece.layers();
  const std::int32_t interval = std::max(1, std::min(layers, recompute_interval(strategy, layers)));
  // Groups between the first and the last two, of which one may be smaller, repeat each other.
  const std::int32_t rest = layers % interval, few = std::min(layers, 3 * interval + rest);
  const auto in_few = [&](std::int32_t layer) {
    const std::int32_t from_end = layers - layer;
    if (layer < interval) return layer;
    if (from_end <= interval + rest) return few - from_end;
    return interval + layer % interval;
  };
  // Of several kinds each layer adds what it would in a piece of its kind alone.
  std::map<std::size_t, Traced> of_kinds;
  std::vector<const Traced*> of_layer;
  for (const Piece::Run& r : piece.runs) {
    const auto [it, added] = of_kinds.try_emplace(r.kind);
    if (added) it->second = of_sequences({piece.first, piece.last, r.kind, interval}, few, sequences);
    of_layer.insert(of_layer.end(), static_cast<std::size_t>(r.layers), &it->second);
  }
  if (of_kinds.empty()) of_kinds.emplace(0, of_sequences({piece.first, piece.last, 0, 1}, 1, sequences));
  const Traced& of_ends = of_kinds.begin()->second;

  PieceMemory memory;
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::backward_input, Pass::backward_weight}) {
    double level = 0;
    std::vector<PassStep>& steps = memory.passes[index(pass)];
    const auto add = [&](std::int32_t unit, bool recomputes, const Change& c) {
      if (!c.is_there) return;
      steps.push_back({unit, recomputes, level + c.most, level + c.reading});
      level += c.left;
    };
    const TracedPass& ends = of_ends[index(pass)];
    const auto layer = [&](std::int32_t l, bool recomputes) {
      const TracedPass& of = (*of_layer[static_cast<std::size_t>(l)])[index(pass)];
      add(l + 1, recomputes, (recomputes ? of.recomputed : of.layers)[static_cast<std::size_t>(in_few(l))]);
    };
    if (pass == Pass::forward) {
      add(0, false, ends.embedding);
      for (std::int32_t l = 0; l < layers; ++l) layer(l, false);
      add(layers + 1, false, ends.head);
      memory.kept = level;
    } else {
      add(layers + 1, false, ends.head);
      for (std::int32_t end = layers; end > 0;) {
        const std::int32_t begin = (end - 1) / interval * interval;
        for (std::int32_t l = begin; l < end; ++l) layer(l, true);
        for (std::int32_t l = end; l-- > begin;) layer(l, false);
        end = begin;
      }
      add(0, false, ends.embedding);
    }
    if (pass == Pass::backward_input && !steps.empty()) memory.kept_for_weight = memory.kept + level;
  }
  return memory;
}

}  // namespace sim
