#include "sim/planner/pass_memory.h"

#include <algorithm>
#include <map>
#include <optional>

#include "sim/plan/layer_division.h"
#include "sim/plan/lives.h"
#include "sim/plan/memory.h"
#include "sim/plan/pass_steps.h"
#include "sim/plan/recompute.h"

namespace sim {
namespace {

// The pieces that are traced: how many layers, and how many of them are recomputed together.
struct FewLayers {
  std::int32_t layers, interval;
};
enum FewPiece : std::size_t { kOneLayer, kThreeLayers, kOneGroup, kThreeGroups };
constexpr std::size_t kFewPieces = 4;
constexpr std::array<FewLayers, kFewPieces> kFewLayers{{{1, 1}, {3, 1}, {3, 3}, {9, 3}}};

// A layer of a traced piece that adds as much as a given layer of a real piece.
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

// The share of parameters that a block reads for the last time with an operation, or reads later.
struct LastRead {
  OpTime operation = 0;
  double share = 0;  // of the bytes of all that it reads
};
std::vector<LastRead> last_reads_of(const Plan& plan, const Block& block) {
  std::vector<LastRead> reads;  // from the last operation on; at first `share` is in bytes
  std::vector<BufferId> later;
  double bytes = 0;
  for (std::size_t i = block.operations.size(); i-- > 0;) {
    const double read_later = bytes;
    for (const Operand& o : block.operations[i].operands) {
      if (o.buffer == kNoBuffer) continue;
      const BufferId storage = plan.storage(o.buffer);
      const Buffer& buffer = plan.buffer(storage);
      if (buffer.buffer_class != BufferClass::parameter || std::ranges::find(later, storage) != later.end())
        continue;
      later.push_back(storage);
      bytes += static_cast<double>(buffer.bytes({}).value);
    }
    if (bytes > read_later) reads.push_back({static_cast<OpTime>(i), bytes});
  }
  std::ranges::reverse(reads);
  for (LastRead& r : reads) r.share /= bytes;
  return reads;
}

// Drops parts of a step that are no fuller than an earlier part, when more parameters are there.
void keep_fullest_parts(std::vector<StepChange::WhileReading>& reads) {
  auto kept = reads.begin();
  for (const StepChange::WhileReading& r : reads) {
    const bool hidden = std::any_of(
        reads.begin(), kept, [&](const StepChange::WhileReading& before) { return before.most >= r.most; });
    if (!hidden) *kept++ = r;
  }
  reads.erase(kept, reads.end());
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

struct TracedBlock {
  std::vector<LastRead> last_reads;
  std::vector<double> scratch;  // while each of its operations runs
};
struct TracedPass {
  StepChange embedding, head;
  std::vector<StepChange> layers, recomputed;
};
using Traced = EnumArray<Pass, TracedPass>;

}  // namespace

// Traces programs of a plan: what its steps add to live bytes, without what lives always or accumulates
// gradients.
class PassMemory::Tracer {
 public:
  // Keeps a reference to the blocks.
  explicit Tracer(BlockTimes& blocks)
      : blocks_(blocks),
        groups_(blocks.plan(), uses_of_blocks(blocks.plan())),
        few_(blocks.plan().scenario),
        runs_(blocks.blocks().kinds.size() * kShapes * kFewPieces) {
    divide_evenly(few_);
    few_.strategy.virtual_pipeline = 1;
    const Plan& plan = blocks.plan();
    const std::vector<bool> accumulates = accumulated_gradients(plan, blocks.blocks());
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      const Buffer& buffer = plan.buffers[b];
      const bool comes_and_goes = buffer.lifetime == Lifetime::uses || buffer.lifetime == Lifetime::pass;
      if (comes_and_goes && !accumulates[b] && !buffer.on_host && buffer.view_of == kNoBuffer &&
          !is_scratch(buffer))
        followed_.push_back(static_cast<BufferId>(b));
    }
  }

  // What depends on the number of sequences in a micro-batch. All else is found once.
  struct OfBatch {
    Variables variables;
    std::vector<double> followed;                     // bytes
    std::vector<std::optional<TracedBlock>> blocks;   // those that were met
    std::vector<std::unique_ptr<const Traced>> runs;  // pieces that were asked for
    std::vector<OncePerStage> once_per_stage;
    double bytes_of(const Buffer& buffer) const {
      return static_cast<double>(aligned(buffer.memory(variables)).value);
    }
  };
  OfBatch& of_batch(std::int64_t sequences) {
    const auto [known, added] = batches_.try_emplace(sequences);
    OfBatch& batch = known->second;
    if (!added) return batch;
    const Plan& plan = blocks_.plan();
    const Scenario& s = plan.scenario;
    batch.variables = {.batch = sequences,
                       .query_length = s.workload.seq_len / s.strategy.context_parallel,
                       .kv_length = s.workload.seq_len};
    for (const BufferId b : followed_) batch.followed.push_back(batch.bytes_of(plan.buffer(b)));
    batch.blocks.resize(plan.blocks.size());
    batch.runs.resize(runs_.size());
    batch.once_per_stage = sim::once_per_stage(blocks_, batch.variables);
    return batch;
  }

  // The trace of a piece of layers of one kind, with backward passes whole or in two parts.
  const Traced& of(OfBatch& batch, bool first, bool last, bool splits, std::size_t kind, FewPiece piece) {
    const std::size_t shape = (first ? 4u : 0u) + (last ? 2u : 0u) + (splits ? 1u : 0u);
    const std::size_t place = (kind * kShapes + shape) * kFewPieces + piece;
    std::unique_ptr<const Traced>& known = batch.runs[place];
    if (known) return *known;
    std::unique_ptr<const Run>& run = runs_[place];
    if (!run) run = make_run(first, last, splits, kind, kFewLayers[piece]);
    return *(known = std::make_unique<const Traced>(walk(*run, batch)));
  }

  // The gradient of the residual stream, where pipeline stages exchange it.
  double gradient_of_residual(const OfBatch& batch) const {
    const Plan& plan = blocks_.plan();
    const BlockId receive = blocks_.blocks().receive_gradient;
    if (receive < 0) return 0;
    const Operation& op = plan.block(receive).operations.front();
    return batch.bytes_of(plan.buffer(plan.storage(op.operands.front().buffer)));
  }

 private:
  static constexpr std::size_t kShapes = 8;  // of pieces: with or without neighbours, whole or in two parts
  // A stage with or without neighbours, of which two micro-batches pass through a few layers.
  struct Run {
    bool splits = false;
    std::int32_t first_layer = 0, layers = 0;
    std::vector<Action> actions;
    std::vector<OpTime> times;
    Lives lives;
  };

  std::unique_ptr<const Run> make_run(bool first, bool last, bool splits, std::size_t kind,
                                      const FewLayers& piece) {
    const std::int32_t stages = first && last ? 1 : 3;
    const std::int32_t stage = first ? 0 : last ? stages - 1 : 1;
    become(blocks_.blocks().kinds[kind], piece, stages);
    std::unique_ptr<const Run> run;
    blocks_.with_program(
        stage_program(few_, blocks_.blocks(), two_micro_batches(stages, splits), stage),
        [&](const Plan& with) {
          const std::vector<OpTime> times = action_times(with);
          run.reset(new Run{splits, piece.layers * stage, piece.layers, with.programs.front().actions, times,
                            Lives(with, groups_, 0, {}, times, Step::later)});
        });
    return run;
  }

  const TracedBlock& traced_block(const Lives& lives, OfBatch& batch, BlockId id) const {
    const auto b = static_cast<std::size_t>(id);
    std::optional<TracedBlock>& known = batch.blocks[b];
    if (known) return *known;
    const Plan& plan = blocks_.plan();
    const Block& block = plan.blocks[b];
    known = {last_reads_of(plan, block), std::vector<double>(block.operations.size())};
    for (const BlockUse& u : lives.scratch_of(b)) {
      const double bytes = batch.bytes_of(plan.buffer(u.buffer));
      for (OpTime t = u.first; t <= u.last; ++t) known->scratch[static_cast<std::size_t>(t)] += bytes;
    }
    return *known;
  }

  // Makes the scenario a model of one kind of layer, of which each stage has so many.
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

  // What the second micro-batch changes.
  Traced walk(const Run& run, OfBatch& batch) const {
    const StepBlocks& blocks = blocks_.blocks();
    Traced traced;
    for (TracedPass& pass : traced) {
      pass.layers.resize(static_cast<std::size_t>(run.layers));
      pass.recomputed.resize(static_cast<std::size_t>(run.layers));
    }
    // Bytes that begin with an operation, and bytes that the operation before it was the last to need.
    std::vector<double> begin(static_cast<std::size_t>(run.times.back()) + 1), ended(begin.size());
    for (std::size_t f = 0; f < followed_.size(); ++f)
      run.lives.instances_of(followed_[f], [&](std::int32_t, std::int32_t, OpTime from, OpTime to) {
        begin[static_cast<std::size_t>(from)] += batch.followed[f];
        ended[static_cast<std::size_t>(to) + 1] += batch.followed[f];
      });
    StepChange ignored;
    StepChange* step = nullptr;
    double left = 0;  // after the operation at hand
    // The step at hand; the most in each of its parts, and the one at hand.
    double before = 0;
    std::vector<double> most(1);
    std::size_t part = 0;
    const std::vector<LastRead>* reads = nullptr;
    const auto end_step = [&] {
      if (step && step != &ignored) {
        *step = {.left = left - before, .is_there = true};
        step->reads.reserve(most.size());
        for (std::size_t i = 0; i < most.size(); ++i) {
          const double above = std::max(0.0, most[i] - before);
          step->most = std::max(step->most, above);
          step->reads.push_back({i < reads->size() ? (*reads)[i].share : 0, above});
        }
        keep_fullest_parts(step->reads);
      }
      step = nullptr;
      before = left;
      most.assign(1, 0);
      part = 0;
    };
    for (std::size_t a = 0; a < run.actions.size(); ++a) {
      const Action& action = run.actions[a];
      const TracedBlock& block = traced_block(run.lives, batch, action.block);
      const bool computes = action.stream == kComputeStream && action.peer < 0;
      // A step begins here. What is received and begun for a step belongs to it. What is sent and reduced
      // after a step belongs to it, too.
      const bool begins_pass = action.peer >= 0 && action.stream == kComputeStream;
      if (begins_pass || action.phase == Phase::optimizer) end_step();
      if (computes && action.phase != Phase::optimizer) {
        if (step) end_step();
        if (std::ranges::find(blocks.zero, action.block) == blocks.zero.end()) {
          step = action.micro_batch == 0
                     ? &ignored
                     : &step_of(action, action.layer - run.first_layer, traced[pass_of(action, run.splits)]);
          reads = &block.last_reads;
          most.resize(reads->size() + 1);
        }
      }
      for (std::size_t op = 0; op < block.scratch.size(); ++op) {
        const std::size_t t = static_cast<std::size_t>(run.times[a]) + op;
        const double live = left + begin[t];
        left = live - ended[t + 1];
        most[part] = std::max(most[part], live + block.scratch[op]);
        if (step && part < reads->size() && (*reads)[part].operation == static_cast<OpTime>(op)) ++part;
      }
    }
    end_step();
    // What is recomputed is read again by the backward pass that follows.
    for (TracedPass& pass : traced)
      for (StepChange& recomputed : pass.recomputed) recomputed.reads.clear();
    return traced;
  }
  Pass pass_of(const Action& action, bool splits) const {
    if (action.phase == Phase::forward) return Pass::forward;
    if (!splits) return Pass::backward;
    const std::vector<LayerBlocks>& layers = blocks_.blocks().layers;
    const bool of_weights =
        std::ranges::any_of(layers, [&](const LayerBlocks& l) { return l.weight == action.block; });
    return of_weights ? Pass::backward_weight : Pass::backward_input;
  }
  StepChange& step_of(const Action& action, std::int32_t layer, TracedPass& pass) const {
    const StepBlocks& blocks = blocks_.blocks();
    if (action.block == blocks.embedding || action.block == blocks.embedding_backward) return pass.embedding;
    if (action.block == blocks.head || action.block == blocks.head_backward) return pass.head;
    return (action.phase == Phase::recompute ? pass.recomputed
                                             : pass.layers)[static_cast<std::size_t>(layer)];
  }

  BlockTimes& blocks_;
  LifeGroups groups_;
  Scenario few_;
  std::vector<BufferId> followed_;
  std::vector<std::unique_ptr<const Run>> runs_;  // of pieces that were asked for
  std::map<std::int64_t, OfBatch> batches_;       // by sequences
};

PassMemory::PassMemory(BlockTimes& blocks) : tracer_(std::make_unique<Tracer>(blocks)) {}
PassMemory::~PassMemory() = default;

const std::vector<OncePerStage>& PassMemory::once_per_stage(std::int64_t sequences) const {
  return tracer_->of_batch(sequences).once_per_stage;
}

PieceMemory PassMemory::of(const Piece& piece, const Scenario& scenario) const {
  const Strategy& strategy = scenario.strategy;
  const std::int32_t layers = piece.layers();
  const std::int32_t interval = std::max(1, std::min(layers, recompute_interval(strategy, layers)));
  std::size_t kind_of_ends = piece.runs.empty() ? 0 : piece.runs.front().kind;
  for (const Piece::Run& r : piece.runs) kind_of_ends = std::min(kind_of_ends, r.kind);
  const BackwardParts parts = backward_parts(strategy.schedule);

  PieceMemory memory;
  memory.units = piece.units();
  Tracer::OfBatch& batch = tracer_->of_batch(scenario.workload.micro_batch_size);
  memory.carried_back = tracer_->gradient_of_residual(batch);
  thread_local std::vector<UnitStep> units;  // kept from one piece to the next
  for (const Pass pass : kAll<Pass>) {
    if (!has_pass(parts, pass)) continue;
    const bool splits = parts != BackwardParts::whole && pass != Pass::backward;
    double level = 0;
    std::vector<PassStep>& steps = memory.passes[pass];
    const bool repeats = pass != Pass::forward && strategy.recompute != Recompute::none;
    steps.reserve(static_cast<std::size_t>(memory.units * (repeats ? 2 : 1)));
    const auto add = [&](PassStep step, const StepChange& change) {
      if (!change.is_there) return false;
      step.begin = level;
      step.most = level + change.most;
      step.change = &change;
      steps.push_back(step);
      memory.most[pass] = std::max(memory.most[pass], step.most);
      level += change.left;
      return true;
    };
    set_pass_steps(scenario, piece, pass, {}, {}, units);
    for (const UnitStep& u : units)
      for (std::int32_t n = 0; n < u.count; ++n) {
        // Where there are several kinds, each layer adds what it would in a piece of its kind alone.
        const std::int32_t layer = u.layer + u.direction * n;
        const SameLayer same =
            is_layer(u.unit) ? same_layer(layer, layers, interval) : SameLayer{kThreeLayers, 0};
        const auto kind = is_layer(u.unit) ? static_cast<std::size_t>(u.kind) : kind_of_ends;
        const TracedPass& traced =
            tracer_->of(batch, piece.first, piece.last, splits, kind, same.piece)[pass];
        if (!is_layer(u.unit)) {
          const bool head = u.unit == Unit::head;
          add({.place = head ? kHeadPlace : kEmbeddingPlace, .is_first_of_unit = true},
              head ? traced.head : traced.embedding);
          continue;
        }
        PassStep step{.place = place_of_layers(kind), .recomputes = true, .is_first_of_unit = true};
        const bool again = u.recomputes && add(step, traced.recomputed[same.layer]);
        step.recomputes = false;
        step.is_first_of_unit = u.reads && !again;
        if (u.works) add(step, traced.layers[same.layer]);
      }
    if (pass == Pass::forward) memory.kept = level;
    if (pass == Pass::backward_input) memory.kept_for_weight = memory.kept + level;
  }
  return memory;
}

}  // namespace sim
