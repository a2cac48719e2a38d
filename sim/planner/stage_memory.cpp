#include "sim/planner/stage_memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/plan/device_memory.h"
#include "sim/plan/memory.h"
#include "sim/plan/recompute.h"
#include "sim/plan/stage_program.h"

namespace sim {
namespace {

// Live bytes of a program: when each pass has ended, and the most at its moments.
struct PassLevel {
  double after = 0;
  PassPeaks most{};
};

struct PassId {
  Pass pass{};
  std::int32_t micro_batch = 0;
  bool operator==(const PassId&) const = default;
};

bool is_of_weights(const Block& block) {
  return block.name.find(".backward_weight") != std::string::npos;
}

}  // namespace

PieceMemory PassMemory::of_kind(const Shape& shape, std::int32_t layers, std::int64_t sequences,
                                bool splits) {
  // A model of one kind of layer, and a stage of it with or without neighbours: two micro-batches go forward,
  // then backward.
  const Plan& plan = blocks_.plan();
  Scenario few = plan.scenario;
  Strategy& t = few.strategy;
  const bool neighbours = !shape.first || !shape.last;
  const std::int32_t stages = neighbours ? 3 : 1;
  const std::int32_t stage = shape.first ? 0 : shape.last ? stages - 1 : 1;
  const LayerKind kind = blocks_.blocks().kinds[shape.kind];
  few.model.num_hidden_layers = layers * stages;
  few.model.moe.first_k_dense_replace = kind.experts ? 0 : few.model.num_hidden_layers;
  few.model.moe.decoder_sparse_step = 1;
  few.model.sliding_window_pattern = 0;
  few.model.no_rope_layer_interval = kind.unrotated ? 1 : 0;
  if (!kind.window) few.model.sliding_window = few.model.attention_chunk_size = 0;
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

  std::vector<PassId> passes;
  std::vector<PassLevel> levels;
  double before = 0;
  blocks_.with_program(stage_program(few, blocks_.blocks(), schedule, stage), [&](const Plan& with) {
    const MemoryPlan memory = plan_memory(with, 0, Addresses::none);
    const std::vector<OpTime> times = action_times(with);
    const std::vector<MemoryPoint> timeline = memory_timeline(with, memory);
    const auto& actions = with.programs.front().actions;
    std::size_t point = 0;
    double now = 0;
    const std::int32_t first_layer = layers * stage, last_layer = first_layer + layers - 1;
    Moment moment = Moment::embedding;
    for (std::size_t a = 0; a < actions.size(); ++a) {
      const Action& action = actions[a];
      if (action.phase == Phase::optimizer) {
        for (; point < timeline.size() && timeline[point].time < times[a + 1]; ++point)
          now = static_cast<double>(total(timeline[point].bytes).value);
        if (passes.empty()) before = now;
        continue;
      }
      const BlockId block = action.block;
      const bool forward = action.phase == Phase::forward;
      PassId id{forward                                                       ? Pass::forward
                : !splits                                                     ? Pass::backward
                : is_of_weights(with.blocks[static_cast<std::size_t>(block)]) ? Pass::backward_weight
                                                                              : Pass::backward_input,
                action.micro_batch};
      if (action.stream != kComputeStream && !passes.empty()) id = passes.back();
      if (action.stream == kComputeStream && action.peer < 0) {
        const StepBlocks& b = blocks_.blocks();
        if (block == b.embedding || block == b.embedding_backward)
          moment = Moment::embedding;
        else if (block == b.head || block == b.head_backward)
          moment = Moment::head;
        else
          moment = action.layer == last_layer                                            ? Moment::last_layer
                   : action.layer == first_layer || forward || action.layer < last_layer ? Moment::first_layer
                                                                                         : Moment::last_layer;
      } else if (action.peer >= 0) {
        moment = forward == (action.stream == kSendStream) ? Moment::last_layer : Moment::first_layer;
      }
      if (passes.empty() || passes.back() != id) {
        passes.push_back(id);
        levels.push_back({now, {}});
      }
      PassLevel& level = levels.back();
      double& most = level.most[static_cast<std::size_t>(moment)];
      for (; point < timeline.size() && timeline[point].time < times[a + 1]; ++point) {
        now = static_cast<double>(total(timeline[point].bytes).value);
        most = std::max(most, now);
      }
      level.after = now;
    }
  });

  const auto level = [&](Pass pass, std::int32_t m) -> const PassLevel& {
    const auto at = std::find(passes.begin(), passes.end(), PassId{pass, m}) - passes.begin();
    return levels[static_cast<std::size_t>(at)];
  };
  const auto above = [](const PassLevel& l, double base) {
    PassPeaks peaks{};
    for (std::size_t i = 0; i < kMoments; ++i) peaks[i] = l.most[i] > 0 ? std::max(0.0, l.most[i] - base) : 0;
    return peaks;
  };
  PieceMemory m;
  const PassLevel &f0 = level(Pass::forward, 0), &f1 = level(Pass::forward, 1);
  m.kept = f1.after - f0.after;
  m.forward = above(f1, f0.after);
  const double others = f1.after - m.kept;  // the second one is in flight
  if (splits) {
    const PassLevel &i0 = level(Pass::backward_input, 0), &i1 = level(Pass::backward_input, 1),
                    &w0 = level(Pass::backward_weight, 0), &w1 = level(Pass::backward_weight, 1);
    m.kept_for_weight = w0.after - w1.after;
    m.input = above(i1, i1.after - m.kept_for_weight);
    m.weight = above(w1, w1.after);
    m.first_input = above(i0, others);
    m.first_weight = above(w0, i1.after - m.kept_for_weight);
  } else {
    const PassLevel &b0 = level(Pass::backward, 0), &b1 = level(Pass::backward, 1);
    m.backward = above(b1, b1.after);
    m.first_backward = above(b0, others);
  }
  return m;
}

namespace {

// What grows with the layers, at so many of them.
PieceMemory along(const PieceMemory& few, const PieceMemory& more, double share) {
  const auto at = [share](double a, double b) { return a + (b - a) * share; };
  PieceMemory m;
  m.kept = at(few.kept, more.kept);
  m.kept_for_weight = at(few.kept_for_weight, more.kept_for_weight);
  for (PassPeaks PieceMemory::*peaks :
       {&PieceMemory::forward, &PieceMemory::backward, &PieceMemory::input, &PieceMemory::weight,
        &PieceMemory::first_backward, &PieceMemory::first_input, &PieceMemory::first_weight})
    for (std::size_t i = 0; i < kMoments; ++i) (m.*peaks)[i] = at((few.*peaks)[i], (more.*peaks)[i]);
  return m;
}

PieceMemory mixed(const PieceMemory& a, double share_a, const PieceMemory& b, double share_b) {
  PieceMemory m;
  m.kept = a.kept * share_a + b.kept * share_b;
  m.kept_for_weight = a.kept_for_weight * share_a + b.kept_for_weight * share_b;
  for (PassPeaks PieceMemory::*peaks :
       {&PieceMemory::forward, &PieceMemory::backward, &PieceMemory::input, &PieceMemory::weight,
        &PieceMemory::first_backward, &PieceMemory::first_input, &PieceMemory::first_weight})
    for (std::size_t i = 0; i < kMoments; ++i)
      (m.*peaks)[i] = (a.*peaks)[i] * share_a + (b.*peaks)[i] * share_b;
  return m;
}

}  // namespace

const PieceMemory& PassMemory::measured(const Shape& shape, std::int32_t layers, std::int64_t sequences) {
  const auto [it, added] = measured_.try_emplace({shape, layers, sequences});
  if (!added) return it->second;
  const BackwardParts parts = backward_parts(blocks_.plan().scenario.strategy.schedule);
  PieceMemory& m = it->second;
  m = of_kind(shape, layers, sequences, parts == BackwardParts::all_split);
  if (parts != BackwardParts::some_split) return m;
  const PieceMemory split = of_kind(shape, layers, sequences, true);
  m.kept_for_weight = split.kept_for_weight;
  m.input = split.input;
  m.weight = split.weight;
  m.first_input = split.first_input;
  m.first_weight = split.first_weight;
  return m;
}

// Activations grow with the sequences of a micro-batch, gradients beside them do not.
PieceMemory PassMemory::of_sequences(const Shape& shape, std::int32_t layers, std::int64_t sequences) {
  const std::int64_t few = blocks_.plan().scenario.workload.micro_batch_size > 1 ? 2 : 1;
  if (sequences <= 2 * few) return measured(shape, layers, sequences);
  return along(measured(shape, layers, few), measured(shape, layers, 2 * few),
               static_cast<double>(sequences - few) / static_cast<double>(few));
}

PieceMemory PassMemory::of(const Piece& piece, const Strategy& strategy, std::int64_t sequences) {
  const std::int32_t layers = piece.layers();
  const std::int32_t interval = std::min(layers, recompute_interval(strategy, layers));
  // Of several kinds each layer adds what it would in a piece of its kind alone.
  std::map<std::size_t, std::int32_t> of_kinds;
  for (const Piece::Run& r : piece.runs) of_kinds[r.kind] += r.layers;
  PieceMemory all;
  for (const auto& [kind, n] : of_kinds) {
    const Shape shape{piece.first, piece.last, kind, interval};
    const std::int32_t few = 2 * interval, more = 3 * interval;  // whole groups, of which one is not the last
    const PieceMemory own =
        layers <= few ? of_sequences(shape, layers, sequences)
                      : along(of_sequences(shape, few, sequences), of_sequences(shape, more, sequences),
                              static_cast<double>(layers - few) / (more - few));
    all = mixed(all, 1, own, static_cast<double>(n) / layers);
  }
  return all;
}

StateMemory state_memory(const BlockTimes& times) {
  const Plan& plan = times.plan();
  const StepBlocks& blocks = times.blocks();
  const Scenario& s = plan.scenario;
  const Variables variables{.batch = 1,
                            .query_length = s.workload.seq_len / s.strategy.context_parallel,
                            .kv_length = s.workload.seq_len};
  const std::size_t kinds = blocks.kinds.size();
  // Which units' blocks use a buffer: embedding, head, layers of each kind.
  std::vector<std::uint32_t> users(plan.buffers.size());
  const auto use = [&](BlockId block, std::uint32_t unit) {
    if (block < 0) return;
    for (const Operation& op : plan.blocks[static_cast<std::size_t>(block)].operations) {
      for (const Operand& o : op.operands)
        if (o.buffer != kNoBuffer) users[static_cast<std::size_t>(plan.storage(o.buffer))] |= unit;
      for (const Operand& o : op.beside)
        if (o.buffer != kNoBuffer) users[static_cast<std::size_t>(plan.storage(o.buffer))] |= unit;
    }
  };
  constexpr std::uint32_t kEmbedding = 1, kHead = 2;
  const auto of_kind = [](std::size_t kind) { return 4u << kind; };
  use(blocks.embedding, kEmbedding);
  use(blocks.embedding_backward, kEmbedding);
  use(blocks.head, kHead);
  use(blocks.head_backward, kHead);
  for (std::size_t k = 0; k < kinds; ++k)
    for (const bool first : {false, true})
      for (const bool last : {false, true})
        for (const PlacedBlocks* placed : {&blocks.layers[k].forward, &blocks.layers[k].backward})
          use(placed->at({first, last}), of_kind(k));
  for (const UnitBlocks* u : {&blocks.zero, &blocks.zero_whole, &blocks.reduce, &blocks.gather_for_forward,
                              &blocks.gather_updated, &blocks.norm, &blocks.update}) {
    use(u->embedding, kEmbedding);
    use(u->head, kHead);
    for (std::size_t k = 0; k < kinds; ++k)
      use(blocks.kinds[k].experts ? u->expert_layer : u->layer, of_kind(k));
  }

  std::vector<bool> begun(plan.buffers.size());
  for (const BlockId b :
       {blocks.zero.embedding, blocks.zero.layer, blocks.zero.expert_layer, blocks.zero.head})
    if (b >= 0)
      for (const Operation& op : plan.blocks[static_cast<std::size_t>(b)].operations)
        for (const Operand& o : op.operands)
          if (o.buffer != kNoBuffer) begun[static_cast<std::size_t>(plan.storage(o.buffer))] = true;

  StateMemory m;
  for (UnitBytes* u : {&m.always, &m.accumulators, &m.whole_gradients, &m.gathered_forward,
                       &m.gathered_backward, &m.optimizer, &m.parameters})
    u->layers.resize(kinds);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    if (b.on_host || b.view_of != kNoBuffer || users[i] == 0 || b.buffer_class == BufferClass::scratch)
      continue;
    const double bytes = static_cast<double>(aligned(b.bytes(variables)).value);
    const bool always = b.lifetime == Lifetime::plan || b.lifetime == Lifetime::first_use;
    if (always && b.per_micro_batch) {
      m.per_sequence += bytes;
      continue;
    }
    if (!always && !begun[i]) continue;
    UnitBytes& units = always ? m.always : m.accumulators;
    const bool is_parameter = b.buffer_class == BufferClass::parameter && b.lifetime == Lifetime::plan;
    const double elements = is_parameter ? static_cast<double>(b.elements({})) : 0;
    if (b.per_layer) {
      for (std::size_t k = 0; k < kinds; ++k)
        if (users[i] & of_kind(k)) {
          units.layers[k] += bytes;
          m.parameters.layers[k] += elements;
        }
    } else if ((users[i] & (kEmbedding | kHead)) == 0) {
      m.of_stage += bytes;
    } else {
      if (users[i] & kEmbedding) {
        units.embedding += bytes;
        m.parameters.embedding += elements;
      }
      if (users[i] & kHead) {
        units.head += bytes;
        m.parameters.head += elements;
      }
      if ((users[i] & kEmbedding) && (users[i] & kHead)) {
        (always ? m.shared : m.shared_accumulators) += bytes;
        m.shared_parameters += elements;
      }
    }
  }

  // What blocks write that does not live always.
  const auto passing = [&](BlockId block, bool scratch) {
    double bytes = 0;
    if (block < 0) return bytes;
    std::vector<BufferId> seen;
    for (const Operation& op : plan.blocks[static_cast<std::size_t>(block)].operations)
      for (const auto* operands : {&op.operands, &op.beside})
        for (const Operand& o : *operands) {
          if (o.buffer == kNoBuffer) continue;
          const BufferId storage = plan.storage(o.buffer);
          const Buffer& b = plan.buffers[static_cast<std::size_t>(storage)];
          const bool passes = scratch ? b.buffer_class == BufferClass::scratch
                                      : b.lifetime == Lifetime::uses || b.lifetime == Lifetime::pass;
          if (!passes || b.on_host || begun[static_cast<std::size_t>(storage)] ||
              (!scratch && o.access == Access::read) ||
              std::find(seen.begin(), seen.end(), storage) != seen.end())
            continue;
          seen.push_back(storage);
          bytes += static_cast<double>(aligned(b.bytes(variables)).value);
        }
    return bytes;
  };
  const auto units = [&](UnitBytes& to, const UnitBlocks& u, bool scratch) {
    to.embedding = std::max(to.embedding, passing(u.embedding, scratch));
    to.head = std::max(to.head, passing(u.head, scratch));
    for (std::size_t k = 0; k < kinds; ++k)
      to.layers[k] =
          std::max(to.layers[k], passing(blocks.kinds[k].experts ? u.expert_layer : u.layer, scratch));
  };
  units(m.whole_gradients, blocks.zero_whole, false);
  units(m.gathered_forward, blocks.gather_for_forward, false);
  units(m.gathered_backward, blocks.gather_for_backward, false);
  for (const UnitBlocks* u : {&blocks.norm, &blocks.update, &blocks.unscale, &blocks.gradients_to_host})
    units(m.optimizer, *u, true);
  m.bucket_layers = std::max(blocks.reduce_layers.layers, blocks.reduce_expert_layers.layers);
  return m;
}

std::vector<std::vector<InFlight>> in_flight(const Schedule& schedule) {
  std::vector<std::vector<InFlight>> stages;
  const auto chunks = static_cast<std::size_t>(schedule.chunks);
  for (const std::vector<Slot>& slots : schedule.slots) {
    std::vector<InFlight> most;
    std::vector<std::int32_t> kept(chunks), waiting(chunks);
    std::vector<bool> begun(chunks);
    std::int32_t all_kept = 0, all_waiting = 0;
    for (const Slot& slot : slots) {
      const auto c = static_cast<std::size_t>(slot.chunk);
      // The pass's own micro-batch is not one of the others.
      const bool ends_kept = slot.pass == Pass::backward || slot.pass == Pass::backward_input;
      const bool ends_waiting = slot.pass == Pass::backward_weight;
      const std::int32_t others = all_kept - ends_kept, others_waiting = all_waiting - ends_waiting;
      // Of those that are alike, the ones that hold most of either kind.
      const auto alike = [&](const InFlight& f) {
        return f.pass == slot.pass && f.chunk == slot.chunk && f.begun == begun[c];
      };
      const auto sum = [](const std::vector<std::int32_t>& of) {
        return std::accumulate(of.begin(), of.end(), 0);
      };
      const bool beaten = std::any_of(most.begin(), most.end(), [&](const InFlight& f) {
        return alike(f) && sum(f.kept) >= others && sum(f.waiting) >= others_waiting;
      });
      if (!beaten) {
        std::erase_if(most, [&](const InFlight& f) {
          return alike(f) && sum(f.kept) <= others && sum(f.waiting) <= others_waiting;
        });
        InFlight& now = most.emplace_back(InFlight{slot.pass, slot.chunk, begun[c], kept, waiting});
        now.kept[c] -= ends_kept;
        now.waiting[c] -= ends_waiting;
      }
      all_kept += slot.pass == Pass::forward;
      all_kept -= ends_kept;
      all_waiting += slot.pass == Pass::backward_input;
      all_waiting -= ends_waiting;
      switch (slot.pass) {
        case Pass::forward:
          ++kept[c];
          break;
        case Pass::backward:
          --kept[c];
          begun[c] = true;
          break;
        case Pass::backward_input:
          --kept[c];
          ++waiting[c];
          break;
        case Pass::backward_weight:
          --waiting[c];
          begun[c] = true;
          break;
      }
    }
    stages.push_back(std::move(most));
  }
  return stages;
}

namespace {

// What a device holds where the most that is live, and what is live between steps, are so many bytes.
Bytes held(const Scenario& s, double live, double between_steps, double parameters) {
  const StageCopies copies = copies_of_stage(s, parameters);
  const auto number = [](Bytes b) { return static_cast<double>(b.value); };
  const double step = number(copies.step_fp16) + number(copies.step_fp32);
  const double gather = static_cast<double>(copies.gathered_ranks) * number(copies.gathered_part) +
                        number(copies.gathered_whole);
  const double most = std::max(live, between_steps + std::max({number(copies.reduced), step, gather})) +
                      number(copies.always);
  return {std::llround(most + s.implementation.memory.context_gib * kGiB)};
}

double of_layers(const UnitBytes& u, const Piece& p) {
  double bytes = 0;
  for (const Piece::Run& r : p.runs) bytes += u.layers[r.kind] * r.layers;
  return bytes;
}
double of_piece(const UnitBytes& u, const Piece& p) {
  return of_layers(u, p) + (p.first ? u.embedding : 0) + (p.last ? u.head : 0);
}

}  // namespace

StageActivations stage_activations(const Scenario& scenario, std::vector<const Piece*> pieces,
                                   const std::vector<const PieceMemory*>& chunks,
                                   const std::vector<InFlight>& in_flight, std::int32_t micro_batches) {
  StageActivations a;
  a.pieces = std::move(pieces);
  a.micro_batches = micro_batches;
  a.micro_batch_size = scenario.workload.micro_batch_size;
  for (const Piece* p : a.pieces)
    a.together = std::max(a.together, recompute_interval(scenario.strategy, p->layers()));
  for (const InFlight& f : in_flight) {
    const auto own = static_cast<std::size_t>(f.chunk);
    const PieceMemory& c = *chunks[own];
    PassPeaks bytes = f.pass == Pass::forward          ? c.forward
                      : f.pass == Pass::backward       ? (f.begun ? c.backward : c.first_backward)
                      : f.pass == Pass::backward_input ? (f.begun ? c.input : c.first_input)
                                                       : (f.begun ? c.weight : c.first_weight);
    double base = 0;
    bool waits = false;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      base += chunks[i]->kept * f.kept[i] + chunks[i]->kept_for_weight * f.waiting[i];
      waits = waits || f.waiting[i] > 0;
    }
    for (double& b : bytes) b += base;
    const auto same = std::find_if(a.peaks.begin(), a.peaks.end(), [&](const StageActivations::Peak& p) {
      return p.pass == f.pass && p.chunk == own && p.begun == f.begun &&
             p.waiting == (waits ? f.waiting : std::vector<std::int32_t>{});
    });
    if (same == a.peaks.end())
      a.peaks.push_back({f.pass, own, f.begun, bytes, waits ? f.waiting : std::vector<std::int32_t>{}});
    else
      for (std::size_t i = 0; i < kMoments; ++i) same->bytes[i] = std::max(same->bytes[i], bytes[i]);
  }
  return a;
}

Bytes peak_of_stage(const Scenario& scenario, const StageActivations& a, const StateMemory& m) {
  bool first = false, last = false;
  double always = m.of_stage, parameters = 0, accumulators = 0, updating = 0;
  for (const Piece* p : a.pieces) {
    always += of_piece(m.always, *p);
    parameters += of_piece(m.parameters, *p);
    accumulators += of_piece(m.accumulators, *p);
    first = first || p->first;
    last = last || p->last;
    if (p->first) updating = std::max(updating, m.optimizer.embedding);
    if (p->last) updating = std::max(updating, m.optimizer.head);
    for (const Piece::Run& r : p->runs) updating = std::max(updating, m.optimizer.layers[r.kind]);
  }
  if (first && last) {
    always -= m.shared;
    parameters -= m.shared_parameters;
    accumulators -= m.shared_accumulators;
  }
  always += m.per_sequence * static_cast<double>(a.micro_batch_size) * a.micro_batches;

  double most = accumulators + updating;
  const std::int32_t ahead = scenario.strategy.prefetch;
  const bool exchanges = scenario.strategy.zero_stage >= 2;
  for (const StageActivations::Peak& peak : a.peaks) {
    const double begun = peak.begun ? accumulators : 0;
    if (!exchanges) {
      for (const double b : peak.bytes) most = std::max(most, begun + b);
      continue;
    }
    double base = begun;
    for (std::size_t c = 0; c < peak.waiting.size(); ++c)
      base += of_layers(m.whole_gradients, *a.pieces[c]) * peak.waiting[c];
    const Piece& piece = *a.pieces[peak.chunk];
    const std::int32_t layers = piece.layers();
    const auto some = [&](std::int32_t n) { return static_cast<double>(std::min(n, layers)); };
    const auto layer_of = [&](const UnitBytes& u, bool at_last) {
      if (piece.runs.empty()) return 0.0;
      return u.layers[(at_last ? piece.runs.back() : piece.runs.front()).kind];
    };
    // Parameters that are gathered, a few units ahead.
    PassPeaks more{};
    if (peak.pass == Pass::forward) {
      const UnitBytes& g = m.gathered_forward;
      more[0] = g.embedding + some(ahead) * layer_of(g, false);
      more[1] = some(1 + ahead) * layer_of(g, false);
      more[2] = layer_of(g, true) + (ahead > 0 && piece.last ? g.head : 0);
      more[3] = g.head;
    } else if (peak.pass != Pass::backward_weight) {
      const UnitBytes& g = m.gathered_backward;
      more[1] = some(a.together) * layer_of(g, false);
      more[2] = some(a.together + ahead) * layer_of(g, true);
      more[3] = g.head + some(ahead) * layer_of(g, true);
    }
    // Gradients of the units at work; where backward is in two parts, of all whose weights' pass is to come.
    const UnitBytes& w = m.whole_gradients;
    if (peak.pass == Pass::backward) {
      more[0] += w.embedding;
      more[1] += some(m.bucket_layers) * layer_of(w, false);
      more[2] += layer_of(w, true);
      more[3] += w.head;
    } else if (peak.pass == Pass::backward_input) {
      more[0] += of_layers(w, piece) + w.embedding;
      more[1] += of_layers(w, piece);
      more[2] += layer_of(w, true);
      more[3] += w.head;
    } else if (peak.pass == Pass::backward_weight) {
      more[1] += layer_of(w, false);
      more[2] += of_layers(w, piece);
    }
    if (!piece.first) more[0] = 0;
    if (!piece.last) more[3] = 0;
    for (std::size_t i = 0; i < kMoments; ++i) most = std::max(most, base + peak.bytes[i] + more[i]);
  }
  return held(scenario, always + most, always, parameters);
}

}  // namespace sim
