#include "sim/planner/pass_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/plan/lives.h"
#include "sim/plan/memory.h"
#include "sim/plan/recompute.h"
#include "sim/plan/stage_program.h"
#include "sim/planner/state_memory.h"

namespace sim {
namespace {

using Change = StepChange;
using TracedPass = PassMemory::TracedPass;
using Traced = PassMemory::Traced;

std::size_t index(Pass pass) {
  return static_cast<std::size_t>(pass);
}

bool is_one_of(const UnitBlocks& blocks, BlockId block) {
  return block == blocks.embedding || block == blocks.layer || block == blocks.expert_layer ||
         block == blocks.head;
}

// The pieces that are traced: how many layers, and how many of them are recomputed together.
struct FewLayers {
  std::int32_t layers, interval;
};
enum FewPiece : std::size_t { kOneLayer, kThreeLayers, kOneGroup, kThreeGroups };
constexpr std::array<FewLayers, PassMemory::kTracedPieces> kFewLayers{{{1, 1}, {3, 1}, {3, 3}, {9, 3}}};

// A layer of these that adds what a layer of a piece does.
struct SameLayer {
  FewPiece piece;
  std::size_t layer;
};
SameLayer same_layer(std::int32_t layer, std::int32_t layers, std::int32_t interval) {
  const auto of_three = [](std::int32_t at, std::int32_t of) -> std::size_t {
    return at == 0 ? 0 : at == of - 1 ? 2 : 1;
  };
  const std::int32_t group = layer / interval, groups = (layers + interval - 1) / interval;
  const std::int32_t first = group * interval, of_group = std::min(interval, layers - first);
  if (layers == 1) return {kOneLayer, 0};
  if (of_group == 1) return {kThreeLayers, of_three(layer, layers)};
  const std::size_t in_group = of_three(layer - first, of_group);
  if (groups == 1) return {kOneGroup, in_group};
  return {kThreeGroups, 3 * of_three(group, groups) + in_group};
}

// Parameters that a block reads for the last time with an operation, and those that it reads later.
struct LastRead {
  OpTime operation = 0;
  double share = 0;  // of the bytes of all that it reads
};
std::vector<LastRead> last_reads_of(const Plan& plan, const Block& block) {
  std::map<BufferId, OpTime> last;  // of parameters
  for (std::size_t i = 0; i < block.operations.size(); ++i)
    for (const Operand& o : block.operations[i].operands) {
      if (o.buffer == kNoBuffer) continue;
      const BufferId storage = plan.storage(o.buffer);
      if (plan.buffers[static_cast<std::size_t>(storage)].buffer_class == BufferClass::parameter)
        last[storage] = static_cast<OpTime>(i);
    }
  std::map<OpTime, double> bytes;
  double all = 0;
  for (const auto& [parameter, operation] : last) {
    const double of_one =
        static_cast<double>(plan.buffers[static_cast<std::size_t>(parameter)].bytes({}).value);
    bytes[operation] += of_one;
    all += of_one;
  }
  std::vector<LastRead> reads;
  double later = all;
  for (const auto& [operation, read] : bytes) {
    reads.push_back({operation, later / all});
    later -= read;
  }
  return reads;
}

// Two micro-batches go forward, then backward.
Schedule two_micro_batches(std::int32_t stages, bool splits) {
  std::vector<Slot> slots{{Pass::forward, 0}, {Pass::forward, 1}};
  const auto add = [&](Pass pass) {
    for (const std::int32_t m : {0, 1}) slots.push_back({pass, m});
  };
  if (splits) {
    add(Pass::backward_input);
    add(Pass::backward_weight);
  } else {
    add(Pass::backward);
  }
  return {
      .stages = stages, .chunks = 1, .micro_batches = 2, .slots = {static_cast<std::size_t>(stages), slots}};
}

// Traces programs of a plan: what its steps add to live bytes, without what lives always or accumulates
// gradients.
class Tracer {
 public:
  // For each of these numbers of sequences. Refers to the blocks.
  Tracer(BlockTimes& blocks, const std::vector<std::int64_t>& sequences)
      : blocks_(blocks),
        uses_(uses_of_blocks(blocks.plan())),
        groups_(blocks.plan(), uses_),
        few_(blocks.plan().scenario) {
    few_.implementation.pipeline.balances_head = false;
    few_.strategy.virtual_pipeline = 1;
    const Plan& plan = blocks.plan();
    for (const Block& block : plan.blocks) last_reads_.push_back(last_reads_of(plan, block));
    const std::vector<bool> accumulates = accumulated_gradients(plan, blocks.blocks());
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      const Buffer& buffer = plan.buffers[b];
      const bool comes_and_goes = buffer.lifetime == Lifetime::uses || buffer.lifetime == Lifetime::pass;
      if (comes_and_goes && !accumulates[b] && !buffer.on_host && buffer.view_of == kNoBuffer &&
          !is_scratch(buffer))
        followed_.push_back(static_cast<BufferId>(b));
    }
    for (const std::int64_t n : sequences) sizes_.push_back(bytes_of(n));
  }

  // Of a piece of layers of one kind, by number of sequences.
  std::vector<Traced> trace(bool first, bool last, std::size_t kind, const FewLayers& piece) {
    std::vector<Traced> traced(sizes_.size());
    const BackwardParts parts = backward_parts(few_.strategy.schedule);
    if (parts != BackwardParts::all_split) trace(first, last, kind, piece, false, traced);
    if (parts != BackwardParts::whole) trace(first, last, kind, piece, true, traced);
    for (std::size_t pass = 0; pass < traced.front().size(); ++pass) {
      const auto of = [pass](Traced& t) -> TracedPass& { return t[pass]; };
      keep_fullest_parts(traced, [&](Traced& t) -> Change& { return of(t).embedding; });
      keep_fullest_parts(traced, [&](Traced& t) -> Change& { return of(t).head; });
      for (std::size_t l = 0; l < of(traced.front()).layers.size(); ++l) {
        keep_fullest_parts(traced, [&](Traced& t) -> Change& { return of(t).layers[l]; });
        // What is recomputed is read again by the backward pass that follows.
        for (Traced& t : traced) of(t).recomputed[l].reads.clear();
      }
    }
    return traced;
  }

 private:
  // With one number of sequences.
  struct Sizes {
    std::vector<double> buffers;
    std::vector<std::vector<double>> scratch;  // of each block, while each of its operations runs
  };
  Sizes bytes_of(std::int64_t sequences) const {
    const Plan& plan = blocks_.plan();
    const Workload& w = plan.scenario.workload;
    const Variables variables{.batch = sequences,
                              .query_length = w.seq_len / plan.scenario.strategy.context_parallel,
                              .kv_length = w.seq_len};
    const auto bytes = [&](BufferId b) {
      return static_cast<double>(aligned(plan.buffers[static_cast<std::size_t>(b)].bytes(variables)).value);
    };
    Sizes sizes{.buffers = std::vector<double>(plan.buffers.size()), .scratch = {}};
    for (const BufferId b : followed_) sizes.buffers[static_cast<std::size_t>(b)] = bytes(b);
    for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
      std::vector<double>& scratch = sizes.scratch.emplace_back(plan.blocks[block].operations.size());
      for (const BlockUse& u : uses_[block])
        if (is_scratch(plan.buffers[static_cast<std::size_t>(u.buffer)]))
          for (OpTime t = u.first; t <= u.last; ++t) scratch[static_cast<std::size_t>(t)] += bytes(u.buffer);
    }
    return sizes;
  }

  // Drops parts of a step that are no fuller than one before, when more parameters are there, however many
  // sequences.
  template <class ChangeOf>
  static void keep_fullest_parts(std::vector<Traced>& traced, ChangeOf change_of) {
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < change_of(traced.front()).reads.size(); ++i) {
      const bool hidden = std::any_of(kept.begin(), kept.end(), [&](std::size_t before) {
        return std::all_of(traced.begin(), traced.end(), [&](Traced& t) {
          return change_of(t).reads[before].most >= change_of(t).reads[i].most;
        });
      });
      if (!hidden) kept.push_back(i);
    }
    for (Traced& t : traced) {
      std::vector<Change::WhileReading> reads;
      for (const std::size_t i : kept) reads.push_back(change_of(t).reads[i]);
      change_of(t).reads = std::move(reads);
    }
  }

  // Of a stage with or without neighbours, what its second micro-batch changes.
  void trace(bool first, bool last, std::size_t kind, const FewLayers& piece, bool splits,
             std::vector<Traced>& traced) {
    const std::int32_t stages = first && last ? 1 : 3;
    const std::int32_t stage = first ? 0 : last ? stages - 1 : 1;
    become(blocks_.blocks().kinds[kind], piece, stages);
    const Schedule schedule = two_micro_batches(stages, splits);
    blocks_.with_program(stage_program(few_, blocks_.blocks(), schedule, stage), [&](const Plan& with) {
      const std::vector<OpTime> times = action_times(with);
      const Lives lives(with, groups_, 0, {}, times, Step::later);
      for (std::size_t n = 0; n < sizes_.size(); ++n)
        walk(with, times, lives, sizes_[n], splits, piece.layers * stage, piece.layers, traced[n]);
    });
  }

  // A model of one kind of layer, of which each stage has so many.
  void become(const LayerKind& kind, const FewLayers& piece, std::int32_t stages) {
    const Scenario& of = blocks_.plan().scenario;
    few_.model.num_hidden_layers = piece.layers * stages;
    few_.model.moe.first_k_dense_replace = kind.experts ? 0 : few_.model.num_hidden_layers;
    few_.model.moe.decoder_sparse_step = 1;
    few_.model.sliding_window_pattern = 0;
    few_.model.no_rope_layer_interval = kind.unrotated ? 1 : 0;
    few_.model.sliding_window = kind.window ? of.model.sliding_window : 0;
    few_.model.attention_chunk_size = kind.window ? of.model.attention_chunk_size : 0;
    few_.strategy.pipeline_parallel = stages;
    if (few_.strategy.recompute == Recompute::full) few_.strategy.recompute_interval = piece.interval;
  }

  void walk(const Plan& plan, const std::vector<OpTime>& times, const Lives& lives, const Sizes& sizes,
            bool splits, std::int32_t first_layer, std::int32_t layers, Traced& traced) const {
    const StepBlocks& blocks = blocks_.blocks();
    const auto has = [&](Pass pass) {
      traced[index(pass)].layers.resize(static_cast<std::size_t>(layers));
      traced[index(pass)].recomputed.resize(static_cast<std::size_t>(layers));
    };
    has(Pass::forward);
    for (const Pass pass : {Pass::backward, Pass::backward_input, Pass::backward_weight})
      if (splits == (pass != Pass::backward)) has(pass);
    // Bytes that begin with an operation, and that the one before it was the last to need.
    std::vector<double> begin(static_cast<std::size_t>(times.back()) + 1), ended(begin.size());
    for (const BufferId b : followed_) {
      const double bytes = sizes.buffers[static_cast<std::size_t>(b)];
      lives.instances_of(b, [&](std::int32_t, std::int32_t, OpTime from, OpTime to) {
        begin[static_cast<std::size_t>(from)] += bytes;
        ended[static_cast<std::size_t>(to) + 1] += bytes;
      });
    }
    Change ignored;
    Change* step = nullptr;
    double live = 0, left = 0;  // during and after the operation at hand
    // Of the step at hand; the most in each of its parts, and the one at hand.
    double before = 0;
    std::vector<double> most{0};
    std::size_t part = 0;
    const std::vector<LastRead>* reads = nullptr;
    const auto end_step = [&] {
      if (step) {
        *step = {.left = left - before, .is_there = true};
        for (std::size_t i = 0; i < most.size(); ++i) {
          const double above = std::max(0.0, most[i] - before);
          step->most = std::max(step->most, above);
          step->reads.push_back({i < reads->size() ? (*reads)[i].share : 0, above});
        }
      }
      step = nullptr;
      before = left;
      most.assign(1, 0);
      part = 0;
    };
    const std::vector<Action>& actions = plan.programs.front().actions;
    for (std::size_t a = 0; a < actions.size(); ++a) {
      const Action& action = actions[a];
      const bool computes = action.stream == kComputeStream && action.peer < 0;
      // Where a step begins: what is received and begun for it belongs to it, what is sent and reduced after
      // it to the one before.
      const bool begins_pass = action.peer >= 0 && action.stream == kComputeStream;
      if (begins_pass || action.phase == Phase::optimizer) end_step();
      if (computes && action.phase != Phase::optimizer) {
        if (step) end_step();
        if (!is_one_of(blocks.zero, action.block)) {
          step = action.micro_batch == 0
                     ? &ignored
                     : &step_of(action, action.layer - first_layer, traced[index(pass_of(action, splits))]);
          reads = &last_reads_[static_cast<std::size_t>(action.block)];
          most.resize(reads->size() + 1);
        }
      }
      const std::vector<double>& scratch = sizes.scratch[static_cast<std::size_t>(action.block)];
      for (std::size_t op = 0; op < scratch.size(); ++op) {
        const std::size_t t = static_cast<std::size_t>(times[a]) + op;
        live = left + begin[t];
        left = live - ended[t + 1];
        most[part] = std::max(most[part], live + scratch[op]);
        if (step && part < reads->size() && (*reads)[part].operation == static_cast<OpTime>(op)) ++part;
      }
    }
    end_step();
  }
  Pass pass_of(const Action& action, bool splits) const {
    if (action.phase == Phase::forward) return Pass::forward;
    if (!splits) return Pass::backward;
    const std::vector<LayerBlocks>& layers = blocks_.blocks().layers;
    const bool of_weights = std::any_of(layers.begin(), layers.end(),
                                        [&](const LayerBlocks& l) { return l.weight == action.block; });
    return of_weights ? Pass::backward_weight : Pass::backward_input;
  }
  Change& step_of(const Action& action, std::int32_t layer, TracedPass& pass) const {
    const StepBlocks& blocks = blocks_.blocks();
    if (action.block == blocks.embedding || action.block == blocks.embedding_backward) return pass.embedding;
    if (action.block == blocks.head || action.block == blocks.head_backward) return pass.head;
    return (action.phase == Phase::recompute ? pass.recomputed
                                             : pass.layers)[static_cast<std::size_t>(layer)];
  }

  BlockTimes& blocks_;
  BlockUses uses_;
  LifeGroups groups_;
  std::vector<std::vector<LastRead>> last_reads_;  // of each block
  Scenario few_;
  std::vector<BufferId> followed_;
  std::vector<Sizes> sizes_;
};

}  // namespace

PassMemory::PassMemory(BlockTimes& blocks) {
  const Plan& plan = blocks.plan();
  const Scenario& s = plan.scenario;
  std::vector<std::int64_t> sequences{1};
  if (s.workload.micro_batch_size > 1) sequences = {2, 3, 4};
  fewest_ = sequences.front();
  variables_ = {.batch = 1,
                .query_length = s.workload.seq_len / s.strategy.context_parallel,
                .kv_length = s.workload.seq_len};
  const BlockId receive = blocks.blocks().receive_gradient;
  if (receive >= 0) {
    const Operation& op = plan.blocks[static_cast<std::size_t>(receive)].operations.front();
    residual_gradient_ = plan.buffers[static_cast<std::size_t>(plan.storage(op.operands.front().buffer))];
  }
  const bool in_groups = s.strategy.recompute == Recompute::full && s.strategy.recompute_interval > 1;
  Tracer tracer(blocks, sequences);
  for (const bool first : {false, true})
    for (const bool last : {false, true}) {
      // A piece has neighbours where a pipeline has stages.
      if ((first && last) == residual_gradient_.has_value()) continue;
      for (std::size_t kind = 0; kind < blocks.blocks().kinds.size(); ++kind) {
        OfShape& shape = shapes_[first][last].emplace_back();
        for (const FewPiece p : {kOneLayer, kThreeLayers})
          shape[p] = tracer.trace(first, last, kind, kFewLayers[p]);
        if (in_groups)
          for (const FewPiece p : {kOneGroup, kThreeGroups})
            shape[p] = tracer.trace(first, last, kind, kFewLayers[p]);
      }
    }
}

double PassMemory::gradient_of_residual(std::int64_t sequences) const {
  if (!residual_gradient_) return 0;
  Variables v = variables_;
  v.batch = sequences;
  return static_cast<double>(aligned(residual_gradient_->bytes(v)).value);
}

PieceMemory PassMemory::of(const Piece& piece, const Strategy& strategy, std::int64_t sequences) const {
  const std::int32_t layers = piece.layers();
  const std::int32_t interval = std::max(1, std::min(layers, recompute_interval(strategy, layers)));
  // Activations grow with the sequences of a micro-batch, gradients beside them do not: further ones add what
  // the last ones that are traced do.
  const auto of_sequences = [&](const std::vector<Traced>& traced, auto change_of) -> GrownChange {
    const auto n = static_cast<std::size_t>(sequences - fewest_);
    if (n < traced.size()) return {&change_of(traced[n]), &change_of(traced[n]), 0};
    return {&change_of(traced.front()), &change_of(traced.back()),
            static_cast<double>(n) / static_cast<double>(traced.size() - 1)};
  };
  // Of several kinds each layer adds what it would in a piece of its kind alone.
  const std::vector<OfShape>& shapes = shapes_[piece.first][piece.last];
  std::vector<std::size_t> kinds;
  for (const Piece::Run& r : piece.runs)
    kinds.insert(kinds.end(), static_cast<std::size_t>(r.layers), r.kind);
  const OfShape& of_ends = shapes[kinds.empty() ? 0 : *std::min_element(kinds.begin(), kinds.end())];

  PieceMemory memory;
  memory.carried_back = gradient_of_residual(sequences);
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::backward_input, Pass::backward_weight}) {
    if (of_ends[kThreeLayers].front()[index(pass)].layers.empty()) continue;
    double level = 0;
    std::vector<PassStep>& steps = memory.passes[index(pass)];
    steps.reserve(static_cast<std::size_t>(layers) * (pass == Pass::forward ? 1 : 2) + 2);
    const auto add = [&](PassStep step, const GrownChange& change) {
      if (!change.few->is_there) return;
      step.begin = level;
      step.most = level + change.most();
      step.change = change;
      steps.push_back(step);
      memory.most[index(pass)] = std::max(memory.most[index(pass)], step.most);
      level += change.left();
    };
    const auto end = [&](std::int32_t unit, Change TracedPass::*of) {
      add({.unit = unit, .is_first_of_unit = true},
          of_sequences(of_ends[kThreeLayers],
                       [&](const Traced& t) -> const Change& { return t[index(pass)].*of; }));
    };
    const auto layer = [&](std::int32_t l, bool recomputes) {
      const SameLayer same = same_layer(l, layers, interval);
      const std::size_t kind = kinds[static_cast<std::size_t>(l)];
      const std::vector<Traced>& traced = shapes[kind][same.piece];
      add({.unit = l + 1,
           .kind = static_cast<std::int32_t>(kind),
           .recomputes = recomputes,
           .is_first_of_unit = recomputes || !traced.front()[index(pass)].recomputed[same.layer].is_there},
          of_sequences(traced, [&](const Traced& t) -> const Change& {
            const TracedPass& of = t[index(pass)];
            return (recomputes ? of.recomputed : of.layers)[same.layer];
          }));
    };
    if (pass == Pass::forward) {
      end(0, &TracedPass::embedding);
      for (std::int32_t l = 0; l < layers; ++l) layer(l, false);
      end(layers + 1, &TracedPass::head);
      memory.kept = level;
    } else {
      end(layers + 1, &TracedPass::head);
      for (std::int32_t last = layers; last > 0;) {
        const std::int32_t begin = (last - 1) / interval * interval;
        for (std::int32_t l = begin; l < last; ++l) layer(l, true);
        for (std::int32_t l = last; l-- > begin;) layer(l, false);
        last = begin;
      }
      end(0, &TracedPass::embedding);
    }
    if (pass == Pass::backward_input && !steps.empty()) memory.kept_for_weight = memory.kept + level;
  }
  return memory;
}

}  // namespace sim
