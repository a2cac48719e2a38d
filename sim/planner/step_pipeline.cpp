#include "sim/planner/step_pipeline.h"

#include <algorithm>

#include "sim/cost/stragglers.h"
#include "sim/plan/layer_division.h"
#include "sim/plan/recompute.h"

namespace sim {
namespace {

// Micro-batches that pass through each chunk in a step.
std::int32_t micro_batches_of_chunk(const Schedule& s) {
  return s.placement == Placement::two_directions ? s.micro_batches / 2 : s.micro_batches;
}

// Of a pass, the share of its compute that launches may take and surely hide; that exchanges may take: at
// all, where each unit's hide behind its own compute, and where no compute waits for them.
constexpr double kRoom = 0.6, kRoomOfUnits = 0.75, kRoomOfReductions = 0.85;

// Of a micro-batch's backward pass, where a schedule runs some whole and some in two parts: whichever is
// less. 0: it has none of a sort.
template <class Quantity>
Quantity of_either(Quantity whole, Quantity parts) {
  return whole.value > 0 && parts.value > 0 ? std::min(whole, parts) : std::max(whole, parts);
}

}  // namespace

std::string schedule_of_parts(const std::string& schedule) {
  switch (backward_parts(schedule)) {
    case BackwardParts::whole:
      return "1f1b";
    case BackwardParts::all_split:
      return "zb-h1";
    case BackwardParts::some_split:
      return "dualpipev";
  }
  return schedule;
}

StepPasses::Cut& StepPasses::cut(const Scenario& s) {
  const auto [it, added] = cuts_.try_emplace({pieces_of(s.strategy), schedule_of_parts(s.strategy.schedule)},
                                             passes_memory_.get());
  Cut& cut = it->second;
  if (!added) return cut;
  for (Piece& p : pieces_of(s, blocks_.blocks().kinds)) {
    const auto same = std::find(cut.distinct.begin(), cut.distinct.end(), p);
    cut.of_piece.push_back(static_cast<std::size_t>(same - cut.distinct.begin()));
    if (same == cut.distinct.end()) cut.distinct.push_back(std::move(p));
  }
  static const StateTimes no_states{};
  Scenario without = s;
  without.strategy.zero_stage = 0;
  const PassTimer timer(without, compute_, no_states, software_);
  for (const Piece& p : cut.distinct) {
    const auto same = std::find_if(cut.distinct.begin(), cut.distinct.end(),
                                   [&](const Piece& other) { return other.runs == p.runs; });
    cut.same_layers.push_back(static_cast<std::size_t>(same - cut.distinct.begin()));
    cut.plain.push_back(timer.plain(p));
    cut.memory.push_back(memory_.of(p, s.strategy, s.workload.micro_batch_size));
  }
  return cut;
}

StepPipeline::StepPipeline(const Scenario& s, StepPasses& passes, const ScheduleFacts& facts)
    : passes_(passes),
      cut_(passes.cut(s)),
      facts_(facts),
      slowest_over_mean_(1 + waiting_over_mean(s, s.hardware)),
      chunks_(static_cast<std::size_t>(facts.placement.chunks)),
      memory_(cut_.distinct, cut_.memory,
              static_cast<double>(s.workload.micro_batch_size * micro_batches_of_chunk(facts.placement))) {
  for (const Piece& p : cut_.distinct) most_ahead_ = std::max(most_ahead_, p.units() - 1);
  find_kinds();
  find_fullest();
  least_ = least_of_compute();
  constexpr std::size_t kUsual = 64;  // so that most lists of exchanges are allocated once
  numbered_.reserve(kUsual);
  exchanged_.reserve(kUsual);
  ends_.reserve(kUsual * kinds_.size());
}

void StepPipeline::find_kinds() {
  const Schedule& placement = facts_.placement;
  const auto stages = static_cast<std::size_t>(placement.stages);
  kind_of_stage_.reserve(stages);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const auto piece = [&](std::size_t chunk) {
      return cut_.of_piece[static_cast<std::size_t>(
          placement.piece(static_cast<std::int32_t>(stage), static_cast<std::int32_t>(chunk)))];
    };
    const bool at_an_end = stage == 0 || stage + 1 == stages;
    const auto is = [&](const Kind& k) {
      if (k.units.at_an_end != at_an_end) return false;
      for (std::size_t c = 0; c < chunks_; ++c)
        if (k.chunks[c] != piece(c)) return false;
      return true;
    };
    const std::size_t same =
        stage > 0 && is(kinds_[kind_of_stage_.back()])
            ? kind_of_stage_.back()
            : static_cast<std::size_t>(std::find_if(kinds_.begin(), kinds_.end(), is) - kinds_.begin());
    if (same == kinds_.size()) {
      Kind& kind = kinds_.emplace_back();
      kind.units.at_an_end = at_an_end;
      for (std::size_t c = 0; c < chunks_; ++c) {
        kind.chunks.push_back(piece(c));
        const Piece& of_chunk = cut_.distinct[kind.chunks.back()];
        kind.units.first = kind.units.first || of_chunk.first;
        kind.units.last = kind.units.last || of_chunk.last;
        for (const Piece::Run& r : of_chunk.runs) {
          if (kind.units.layers.size() <= r.kind) kind.units.layers.resize(r.kind + 1);
          kind.units.layers[r.kind] += r.layers;
        }
      }
      kind.number =
          passes_.stage_numbers_.try_emplace(kind.units, passes_.stage_numbers_.size()).first->second;
    }
    kinds_[same].stages.push_back(stage);
    kind_of_stage_.push_back(same);
    piece_of_.insert(piece_of_.end(), kinds_[same].chunks.begin(), kinds_[same].chunks.end());
  }
}

// Of stages with the same pieces those may be the fullest that keep most for micro-batches, or for most of
// which weights' gradients are to come.
void StepPipeline::find_fullest() {
  const auto kept = [&](const Kind& kind, const MostHeld& held) {
    double most = 0;
    for (auto of = held.micro_batches.begin(); of != held.micro_batches.end();
         of += static_cast<std::ptrdiff_t>(2 * chunks_)) {
      double bytes = 0;
      for (std::size_t c = 0; c < chunks_; ++c) {
        const PieceMemory& memory = cut_.memory[kind.chunks[c]];
        bytes += memory.kept * of[static_cast<std::ptrdiff_t>(2 * c)] +
                 memory.kept_for_weight * of[static_cast<std::ptrdiff_t>(2 * c + 1)];
      }
      most = std::max(most, bytes);
    }
    return most;
  };
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    const Kind& kind = kinds_[k];
    std::size_t holds = 0, waits = 0;
    double most_kept = -1;
    std::pair<std::int32_t, double> most_waiting{-1, -1};
    for (const std::size_t stage : kind.stages) {
      const MostHeld& held = facts_.most_held[stage];
      if (held.no_more_than_before && kind_of_stage_[stage - 1] == k) continue;
      const double bytes = kept(kind, held);
      if (bytes > most_kept) {
        most_kept = bytes;
        holds = stage;
      }
      if (std::pair{held.waiting, bytes} > most_waiting) {
        most_waiting = {held.waiting, bytes};
        waits = stage;
      }
    }
    const UnitCounts units{.embedding = kind.units.first ? 1.0 : 0.0,
                           .head = kind.units.last ? 1.0 : 0.0,
                           .layers = {kind.units.layers.begin(), kind.units.layers.end()}};
    const auto add = [&](std::size_t stage) {
      numbers_.push_back(kind.number);
      memory_.add({.chunks = kind.chunks, .in_flight = &facts_.in_flight[stage], .units = units});
    };
    add(holds);
    if (waits != holds && facts_.in_flight[waits] != facts_.in_flight[holds]) add(waits);
  }
}

// A stage works on all micro-batches one after the other. Before its first forward pass one micro-batch is
// passed through all pieces before, and after its last backward pass (but for gradients of weights, which
// nobody waits for) one is passed back through them.
Seconds StepPipeline::least_of_compute() const {
  const Schedule& placement = facts_.placement;
  const double micro_batches = micro_batches_of_chunk(placement);
  const auto back = [](const ChunkPasses& p) { return of_either(p.backward.duration, p.input.duration); };
  struct Way {
    Seconds forward, backward;
  };
  std::vector<Way> before;  // by piece
  Way sum{};
  for (std::size_t p = 0; p < cut_.of_piece.size(); ++p) {
    before.push_back(sum);
    const ChunkPasses& passes = cut_.plain[cut_.of_piece[p]];
    sum.forward += passes.forward.duration;
    sum.backward += back(passes);
  }
  Seconds least;
  for (std::int32_t stage = 0; stage < placement.stages; ++stage) {
    Seconds all, without_weights;
    Way first = sum;
    for (std::int32_t c = 0; c < placement.chunks; ++c) {
      const auto piece = static_cast<std::size_t>(placement.piece(stage, c));
      const ChunkPasses& p = cut_.plain[cut_.of_piece[piece]];
      all += p.forward.duration + of_either(p.backward.duration, p.input.duration + p.weight.duration);
      without_weights += p.forward.duration + back(p);
      first.forward = std::min(first.forward, before[piece].forward);
      first.backward = std::min(first.backward, before[piece].backward);
    }
    least = std::max({least, first.forward + all * micro_batches,
                      first.forward + without_weights * micro_batches + first.backward});
  }
  return least;
}

Bytes StepPipeline::memory(const Scenario& s, const StepStates& states) const {
  std::vector<std::optional<StageStates>>& known = states.unbucketed().of_stages;
  return memory_.peak(s, states.memory(), states.bucket_layers(), [&](std::size_t i) -> const StageStates& {
    const std::size_t number = numbers_[i];
    if (known.size() <= number) known.resize(passes_.stage_numbers_.size());
    if (!known[number]) known[number] = stage_states(s, states.memory(), memory_.stages()[i].units);
    return *known[number];
  });
}

std::span<const ChunkPasses> StepPipeline::exchanging(const Scenario& s, const StepStates& states) {
  const int ahead = std::min(s.strategy.prefetch, most_ahead_);
  const auto [known, added] = cut_.exchanging.try_emplace({states.exchange(), ahead});
  auto& passes = known->second;
  if (!added) return passes;
  const PassTimer timer(s, passes_.compute_, states.times(), passes_.software_);
  auto& unbucketed = cut_.unbucketed[{states.unbucketed().exchanges, ahead}];
  auto& bucketed = cut_.bucketed[states.exchange()];
  const std::size_t pieces = cut_.distinct.size();
  unbucketed.reserve(pieces);
  bucketed.reserve(pieces);
  passes.reserve(pieces);
  for (std::size_t p = 0; p < pieces; ++p) {
    const Piece& piece = cut_.distinct[p];
    const ChunkPasses& plain = cut_.plain[p];
    if (p == unbucketed.size()) timer.unbucketed(piece, plain, unbucketed.emplace_back());
    if (p == bucketed.size()) {
      const std::size_t same = cut_.same_layers[p];
      bucketed.push_back(
          timer.bucketed(piece, plain, same < p ? &bucketed[same] : nullptr, passes_.passes_memory_.get()));
    }
    timer.with_exchanges(piece, plain, unbucketed[p], bucketed[p], passes.emplace_back());
  }
  return passes;
}

// In whatever pieces a stage has its units, they are worked on one after the other.
Piece StepPipeline::all_units(const StageUnits& units) const {
  Piece all{.first = units.first, .last = units.last, .runs = {}};
  for (std::size_t k = 0; k < units.layers.size(); ++k)
    if (units.layers[k] > 0)
      all.runs.push_back({k, passes_.blocks_.blocks().kinds[k].experts, units.layers[k]});
  return all;
}

std::vector<const Piece*> StepPipeline::pieces_of(const Kind& kind) const {
  std::vector<const Piece*> pieces;
  for (const std::size_t chunk : kind.chunks) pieces.push_back(&cut_.distinct[chunk]);
  return pieces;
}

const EndsOfStages& StepPipeline::ends_of(const Scenario& s, const StepStates& states) const {
  // Buckets that go beside the passes are not among what a stage does once.
  const bool buckets = states.bucket_layers() != BucketLayers{} && !reduces_beside(s);
  EndsOfStages& known = buckets ? states.bucket_ends() : states.unbucketed().ends;
  for (const Kind& kind : kinds_) {
    if (known.size() <= kind.number) known.resize(passes_.stage_numbers_.size());
    std::optional<StageEnds>& ends = known[kind.number];
    if (!ends)
      ends = stage_ends(s, all_units(kind.units), pieces_of(kind), kind.units.at_an_end,
                        buckets ? states.times() : states.unbucketed().times(), passes_.software_);
  }
  return known;
}

// Parameters for the first pass are gathered while the host does what it does before it.
Seconds StepPipeline::begin_of(const Scenario& s, const StepStates& states, const Kind& kind) const {
  const Seconds begin = ends_of(s, states)[kind.number]->begin;
  if (s.strategy.zero_stage < 3 || passes_.software_.before_first_pass.value == 0) return begin;
  const PassTimer timer(s, passes_.compute_, states.unbucketed().times(), passes_.software_);
  const Piece& piece = cut_.distinct[kind.chunks.front()];
  return std::max(Seconds{}, begin + timer.launches_of_first_gathers(piece) - timer.first_gather(piece));
}

void StepPipeline::execute() {
  plain_ = facts_.clock().run(cut_.plain, piece_of_, passes_.transfers_);
  on_path_.resize(cut_.distinct.size());
  followed_.resize(cut_.distinct.size());
  const auto add = [](auto& sum, const auto& more) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  };
  for (std::size_t stage = 0; stage < kind_of_stage_.size(); ++stage)
    for (std::size_t c = 0; c < chunks_; ++c) {
      const std::size_t piece = kinds_[kind_of_stage_[stage]].chunks[c];
      add(on_path_[piece], plain_->on_path[stage * chunks_ + c]);
      add(followed_[piece], plain_->followed[stage * chunks_ + c]);
    }
  longest_ = {};
  for (const StageEnd& e : plain_->ends) longest_ = std::max(longest_, e.compute);
  for (Kind& kind : kinds_)
    kind.last = *std::max_element(kind.stages.begin(), kind.stages.end(), [&](std::size_t a, std::size_t b) {
      return plain_->ends[a].compute < plain_->ends[b].compute;
    });
}

// By as much as passes on the longest path are longer, and as what comes next waits for their collectives.
Seconds StepPipeline::longer_with(std::span<const ChunkPasses> passes, bool gathers) const {
  Seconds longer;
  for (std::size_t p = 0; p < passes.size(); ++p) {
    longer += passes[p].begin_gradients.duration * on_path_[p][kPasses.size()];
    for (std::size_t pass = 0; pass < kPasses.size(); ++pass)
      longer +=
          ((passes[p].*kPasses[pass]).duration - (cut_.plain[p].*kPasses[pass]).duration) * on_path_[p][pass];
    // The next pass's gathers wait for what is still reduced; compute beside it is slower.
    for (std::size_t pass = 0; pass < kPasses.size(); ++pass) {
      const PassTime& t = passes[p].*kPasses[pass];
      const Seconds after = std::max(Seconds{}, t.collectives_after_compute - t.duration);
      longer += (gathers ? after : slower_beside(after, after)) * followed_[p][pass];
    }
  }
  return longer;
}

// How much longer compute takes beside what is exchanged for so long from its beginning on.
Seconds StepPipeline::slower_beside(Seconds exchanged, Seconds compute) const {
  const double slowdown = passes_.software_.interference.compute;
  return std::max(Seconds{}, std::min(exchanged, compute * slowdown)) * (1 - 1 / slowdown);
}

// Whether a pass is no longer the same with whatever is before and after it.
bool StepPipeline::needs_units(const Scenario& s, std::span<const ChunkPasses> passes, bool hide) const {
  constexpr std::int32_t kFew = 2;
  const HostProfile& host = s.implementation.host;
  const TransferTimes& transfers = passes_.transfers_;
  if (host.waits_around_passes || transfers.send_forward.work.waits || transfers.receive_forward.work.waits)
    return true;
  const int zero = s.strategy.zero_stage;
  // The host launches gathers and compute in turn, or nothing ahead of it where there are few passes.
  const bool launches = host.launch.value > 0;
  if (launches && zero == 3 && s.strategy.prefetch == 0) return true;
  const Schedule& placement = facts_.placement;
  const bool brief = placement.stages == 1 && placement.micro_batches <= kFew;
  if ((brief && (launches || !hide)) || !host_keeps_up(passes)) return true;
  // Gradients are begun unit by unit, between messages that are waited for.
  return !hide && (zero >= 2 || micro_batches_of_chunk(placement) == 1) && begins_gradients_for_long(passes);
}

// So long that it may make another path through the pipeline the longest.
bool StepPipeline::begins_gradients_for_long(std::span<const ChunkPasses> passes) const {
  constexpr double kNegligible = 0.005;  // of a step
  return std::any_of(passes.begin(), passes.end(), [&](const ChunkPasses& p) {
    return p.begin_gradients.duration > longest_ * kNegligible;
  });
}

// Whether the host launches all passes with room to spare, were they no longer than without exchanges.
bool StepPipeline::host_keeps_up(std::span<const ChunkPasses> passes) const {
  for (std::size_t p = 0; p < passes.size(); ++p)
    for (const auto pass : kPasses)
      if ((passes[p].*pass).host.launches > (cut_.plain[p].*pass).duration * kRoom) return false;
  return true;
}

// Whether collectives take no more than a share of the compute that they hide behind.
bool StepPipeline::exchanges_hide(const ChunkPasses& passes, const ChunkPasses& plain, double room) {
  for (const auto& [usual, last] : {std::pair{&ChunkPasses::backward, &ChunkPasses::last_backward},
                                    std::pair{&ChunkPasses::weight, &ChunkPasses::last_weight},
                                    std::pair{&ChunkPasses::forward, &ChunkPasses::first_forward}})
    if (std::max((passes.*usual).collectives, (passes.*last).collectives) > (plain.*usual).duration * room)
      return false;
  return true;
}

std::size_t StepPipeline::ask(const Scenario& s, const StepStates& states) {
  const std::size_t number = exchanged(s, states, Bound::no);
  Exchanged& found = exchanged_[number];
  if (found.by_units || found.asked || found.ends) return number;
  found.asked = true;
  found.begin = {};
  std::vector<PipelinePasses>& runs = passes_.runs_;
  if (runs.size() == asked_.size()) runs.emplace_back();
  PipelinePasses& run = runs[asked_.size()];
  asked_.push_back(number);
  run.passes = found.passes.empty() ? exchanging(s, states) : found.passes;
  run.begin.stages.clear();
  run.begin.first_forward.clear();
  const bool ahead = PassTimer(s, passes_.compute_, states.times(), passes_.software_).gathers_ahead();
  const EndsOfStages& all_ends = ends_of(s, states);
  for (std::size_t stage = 0; stage < kind_of_stage_.size(); ++stage) {
    const Kind& kind = kinds_[kind_of_stage_[stage]];
    if (const std::size_t first = kind.stages.front(); first != stage) {  // as the first of its kind
      const StageEnd begin = run.begin.stages[first];
      run.begin.stages.push_back(begin);
      for (std::size_t c = 0; ahead && c < chunks_; ++c) {
        const Seconds gathered = run.begin.first_forward[first * chunks_ + c];
        run.begin.first_forward.push_back(gathered);
      }
      continue;
    }
    const StageEnds& once = *all_ends[kind.number];
    Seconds gathered;  // parameters arrive one after the other
    for (const std::size_t c : kind.chunks) {
      if (!ahead) continue;
      const PassTime& first_forward = run.passes[c].first_forward;
      run.begin.first_forward.push_back(gathered + first_forward.compute_after_collectives);
      gathered += first_forward.collectives;
    }
    const Seconds begin = begin_of(s, states, kind);
    const Seconds slower = slower_beside(gathered - once.host_begin, once.begin - once.host_begin);
    run.begin.stages.push_back({begin + slower, gathered, {}, once.host_begin + begin - once.begin});
  }
  return number;
}

void StepPipeline::run_asked() {
  if (asked_.empty()) return;
  thread_local std::vector<StageEnd> ends;
  facts_.clock().run({passes_.runs_.data(), asked_.size()}, piece_of_, passes_.transfers_, ends);
  auto e = ends.begin();
  for (const std::size_t number : asked_) {
    exchanged_[number].ends = true;
    Ends* of_kinds = ends_of(number);
    for (std::size_t stage = 0; stage < kind_of_stage_.size(); ++stage, ++e) {
      Ends& kind = of_kinds[kind_of_stage_[stage]];
      kind = {std::max({kind.device, e->compute, e->collectives}), std::max(kind.host, e->host),
              std::max(kind.sends, e->sends)};
    }
  }
  asked_.clear();
}

Seconds StepPipeline::run_units(const Scenario& s, const StepStates& states) {
  const PassTimer timer(s, passes_.compute_, states.times(), passes_.software_);
  std::vector<ChunkSteps> distinct;
  for (const Piece& p : cut_.distinct) distinct.push_back(timer.steps(p));
  const std::size_t stages = kind_of_stage_.size();
  std::vector<Piece> units;
  std::vector<const ChunkSteps*> chunks;
  std::vector<ChunkSteps> own;  // of chunks whose parameters come one after the other
  own.reserve(stages * chunks_);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const Kind& kind = kinds_[kind_of_stage_[stage]];
    units.push_back(all_units(kind.units));
    for (const std::size_t c : kind.chunks)
      chunks.push_back(timer.gathers_ahead() ? &own.emplace_back(distinct[c]) : &distinct[c]);
  }
  const Seconds host_first = passes_.software_.before_first_pass;
  std::vector<DeviceClock> clocks = facts_.clock().run(chunks, passes_.transfers_, host_first, [&] {
    std::vector<DeviceClock> begun(stages,
                                   DeviceClock(passes_.software_.interference, passes_.transfers_.in_order));
    for (std::size_t stage = 0; stage < stages; ++stage) {
      if (timer.gathers_ahead())
        for (std::size_t c = 0; c < chunks_; ++c)
          timer.gather_ahead(cut_.distinct[kinds_[kind_of_stage_[stage]].chunks[c]], own[stage * chunks_ + c],
                             begun[stage]);
      begin_stage(s, units[stage], states.times(), passes_.software_, begun[stage]);
    }
    return begun;
  });
  Seconds end;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const Kind& kind = kinds_[kind_of_stage_[stage]];
    finish_stage(s, units[stage], pieces_of(kind), kind.units.at_an_end, states.times(), passes_.software_,
                 clocks[stage]);
    end = std::max(end, clocks[stage].end());
  }
  return end;
}

template <class Find>
std::size_t StepPipeline::number_of(int exchange, int ahead, Find find) {
  const auto place = static_cast<std::size_t>(exchange);
  if (last_numbered_.size() <= place) last_numbered_.resize(place + 1, -1);
  for (std::int32_t i = last_numbered_[place]; i >= 0;) {
    const Numbered& n = numbered_[static_cast<std::size_t>(i)];
    if (n.ahead == ahead) return n.number;
    i = n.before;
  }
  const std::size_t number = find();
  numbered_.push_back({ahead, number, last_numbered_[place]});
  last_numbered_[place] = static_cast<std::int32_t>(numbered_.size()) - 1;
  return number;
}

std::size_t StepPipeline::exchanged(const Scenario& s, const StepStates& states, Bound bound) {
  const bool gathers = s.strategy.zero_stage == 3;
  const auto add = [&](const PassTimer& timer, const StepPasses::Hidden* hidden) {
    ends_.resize(ends_.size() + kinds_.size());
    exchanged_.push_back(hide_exchanges(s, states, timer, hidden, bound));
    return exchanged_.size() - 1;
  };
  const bool begins_alike = passes_.software_.before_first_pass.value == 0;
  const int ahead = begins_alike ? std::min(s.strategy.prefetch, most_ahead_) : s.strategy.prefetch;
  return number_of(states.exchange(), gathers ? ahead : 0, [&] {
    const PassTimer timer(s, passes_.compute_, states.times(), passes_.software_);
    const bool in_time = !gathers || std::all_of(cut_.distinct.begin(), cut_.distinct.end(),
                                                 [&](const Piece& p) { return timer.gathers_hide(p); });
    const StepPasses::Hidden* hidden = in_time ? &hidden_of(s, states, timer) : nullptr;
    // What hides if it is gathered so many units ahead, hides for any more.
    constexpr int kEnough = -1;
    if (gathers && hidden && hidden->hide && begins_alike)
      return number_of(states.exchange(), kEnough, [&] { return add(timer, hidden); });
    return add(timer, hidden);
  });
}

const StepPasses::Hidden& StepPipeline::hidden_of(const Scenario& s, const StepStates& states,
                                                  const PassTimer& timer) {
  const auto [known, added] = cut_.hidden.try_emplace(states.exchange(), passes_.passes_memory_.get());
  StepPasses::Hidden& hidden = known->second;
  if (!added) return hidden;
  // Layers that are recomputed together are gathered together: what they wait for is not in closed form.
  const bool one_by_one = std::all_of(cut_.distinct.begin(), cut_.distinct.end(), [&](const Piece& p) {
    return recompute_interval(s.strategy, p.layers()) == 1;
  });
  const double room = s.strategy.zero_stage < 3 ? kRoomOfReductions : one_by_one ? kRoomOfUnits : kRoom;
  hidden.passes.reserve(cut_.distinct.size());
  for (std::size_t p = 0; p < cut_.distinct.size(); ++p) {
    ChunkPasses& passes = hidden.passes.emplace_back();
    timer.with_hidden_exchanges(cut_.distinct[p], cut_.plain[p], passes);
    hidden.hide = hidden.hide && exchanges_hide(passes, cut_.plain[p], room);
    hidden.reductions_hide = hidden.reductions_hide && PassTimer::reductions_hide(passes);
  }
  hidden.hide = hidden.hide && (hidden.reductions_hide || one_by_one);
  return hidden;
}

// As if all exchanges but the first and the last hid behind compute, where that can be: what a step takes at
// least, and where they do, what it takes.
StepPipeline::Exchanged StepPipeline::hide_exchanges(const Scenario& s, const StepStates& states,
                                                     const PassTimer& timer, const StepPasses::Hidden* hidden,
                                                     Bound bound) {
  const int zero = s.strategy.zero_stage;
  const bool hide = hidden && hidden->hide && (zero < 3 || hidden->reductions_hide);
  Exchanged found;
  if (!hidden) found.passes = exchanging(s, states);
  const std::span<const ChunkPasses> passes = hidden ? hidden->passes : found.passes;
  // Only the next pass's first gather waits: passes are what they are, but not when they begin.
  if (hidden && hidden->hide && !hide) found.passes = hidden->passes;
  if (!plain_) execute();
  found.by_units = needs_units(s, passes, hide);
  found.begin = begin_of(s, states, kinds_[kind_of_stage_.front()]);
  const bool same_path = facts_.placement.stages == 1 || !begins_gradients_for_long(passes);
  found.ends = hide && same_path && !found.by_units;
  if (found.ends) {
    Seconds longer = longer_with(passes, zero == 3);
    if (timer.gathers_ahead()) longer += longer_with_gathers_ahead(s, states, passes, found.begin);
    Ends* ends = ends_of(exchanged_.size());
    for (std::size_t k = 0; k < kinds_.size(); ++k)
      ends[k] = ends_of_hidden(kinds_[k], passes, longer, zero >= 2);
  } else if (bound == Bound::yes) {
    find_least(passes, zero, found);
  }
  return found;
}

// By parameters that are gathered from the beginning of the step on, beside compute.
Seconds StepPipeline::longer_with_gathers_ahead(const Scenario& s, const StepStates& states,
                                                std::span<const ChunkPasses> passes, Seconds begin) const {
  const Kind& kind = kinds_[kind_of_stage_.front()];
  const PassTime& pass = passes[kind.chunks.front()].first_forward;
  const Seconds host = ends_of(s, states)[kind.number]->host_begin;
  Seconds compute = begin, gathered;  // of all chunks
  for (const std::size_t c : kind.chunks) {
    compute += passes[c].first_forward.duration;
    gathered += passes[c].first_forward.collectives;
  }
  return std::max(slower_beside(gathered - host, compute - host),
                  pass.compute_after_collectives - begin - pass.duration);
}

// What the exchanges of one micro-batch come to, on a stage.
struct StepPipeline::OfMicroBatch {
  Seconds launches, forward, backward;  // the latter two of collectives
};
StepPipeline::OfMicroBatch StepPipeline::of_micro_batch(const Kind& kind,
                                                        std::span<const ChunkPasses> passes) const {
  OfMicroBatch sum;
  for (const std::size_t c : kind.chunks) {
    const ChunkPasses &with = passes[c], &without = cut_.plain[c];
    const auto more_launches = [&](PassTime ChunkPasses::*pass) {
      return (with.*pass).host.launches - (without.*pass).host.launches;
    };
    sum.launches += more_launches(&ChunkPasses::forward) +
                    of_either(more_launches(&ChunkPasses::backward),
                              more_launches(&ChunkPasses::input) + more_launches(&ChunkPasses::weight));
    sum.forward += with.forward.collectives;
    sum.backward += of_either(with.backward.collectives, with.input.collectives + with.weight.collectives);
  }
  return sum;
}

// `each`: micro-batches' gradients are reduced one by one.
StepPipeline::Ends StepPipeline::ends_of_hidden(const Kind& kind, std::span<const ChunkPasses> passes,
                                                Seconds longer, bool each) const {
  const std::size_t stage = kind.last;
  const StageEnd& e = plain_->ends[stage];
  const auto is_whole = [&](std::size_t c) { return cut_.plain[c].weight.duration.value == 0; };
  const auto slower = [&](std::size_t c) {
    const ChunkPasses &with = passes[c], &without = cut_.plain[c];
    return is_whole(c) ? with.last_backward.duration - without.backward.duration
                       : with.last_weight.duration - without.weight.duration;
  };
  Seconds slower_to_come;  // last passes of chunks that have not begun
  for (const std::size_t c : kind.chunks) slower_to_come += slower(c);
  // Chunks end one after the other: from the last to the first, but for a pipeline's further half where
  // micro-batches come from both ends.
  const Seconds* last_began = &plain_->last_began[stage * chunks_];
  const bool from_first = last_began[0] < last_began[chunks_ - 1];
  Seconds collectives;
  for (std::size_t n = 0; n < chunks_; ++n) {
    const std::size_t chunk = from_first ? n : chunks_ - 1 - n, c = kind.chunks[chunk];
    const PassTime& last = is_whole(c) ? passes[c].last_backward : passes[c].last_weight;
    const Seconds began = last_began[chunk] + std::max(Seconds{}, longer - slower_to_come);
    slower_to_come = slower_to_come - slower(c);
    collectives = std::max(collectives + last.collectives, began + last.collectives_after_compute);
  }
  const OfMicroBatch sum = of_micro_batch(kind, passes);
  const double micro_batches = micro_batches_of_chunk(facts_.placement);
  // All of a stage's collectives, one after the other.
  if (each)
    collectives =
        std::max(collectives, plain_->first_backward[stage] + (sum.forward + sum.backward) * micro_batches);
  const Seconds host = e.host + sum.launches * micro_batches;
  return {std::max({e.compute + longer, collectives, host}), host, e.sends + longer};
}

void StepPipeline::find_least(std::span<const ChunkPasses> passes, int zero, Exchanged& found) const {
  const double micro_batches = micro_batches_of_chunk(facts_.placement);
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    const std::size_t stage = kinds_[k].last;
    const OfMicroBatch sum = of_micro_batch(kinds_[k], passes);
    // What ZeRO 3 gathers for backward passes may be there before the first begins.
    Seconds least = zero == 3   ? (sum.forward + sum.backward) * micro_batches
                    : zero == 2 ? plain_->first_backward[stage] + sum.backward * micro_batches
                                : Seconds{};
    // The longest path without exchanges is a path with them, but where units and their launches make it.
    const Seconds compute = plain_->ends[stage].compute;
    if (compute == longest_ && !found.by_units) least = std::max(least, compute);
    if (least > found.least) {
      found.least = least;
      found.least_of = k;
    }
  }
}

Seconds StepPipeline::time(const Scenario& s, const StepStates& states) {
  const std::size_t asked = ask(s, states);
  run_asked();
  return time(s, states, asked);
}

Seconds StepPipeline::time(const Scenario& s, const StepStates& states, std::size_t asked) {
  const Exchanged& found = exchanged_[asked];
  if (found.by_units) return run_units(s, states) * slowest_over_mean_;
  Seconds latest;
  const Ends* e = ends_of(asked);
  const EndsOfStages& all_ends = ends_of(s, states);
  for (const Kind& kind : kinds_) {
    const StageEnds& once = *all_ends[kind.number];
    latest = std::max({latest, e->device + once.finish, e->host + once.finish_ahead,
                       e->host + once.finish_launches, e->sends});
    ++e;
  }
  return (latest + found.begin) * slowest_over_mean_;
}

Seconds StepPipeline::least_time_of_ends(const Scenario& s, const StepStates& states) const {
  // Whichever stage is the last to end its passes.
  const EndsOfStages& all_ends = ends_of(s, states);
  Seconds finish = all_ends[kinds_.front().number]->finish;
  for (const Kind& kind : kinds_) finish = std::min(finish, all_ends[kind.number]->finish);
  return (least_ + finish) * slowest_over_mean_;
}

Seconds StepPipeline::least_time(const Scenario& s, const StepStates& states) {
  const std::size_t number = exchanged(s, states, Bound::yes);
  const Exchanged& found = exchanged_[number];
  if (found.ends) return time(s, states, number);
  const Seconds finish = ends_of(s, states)[kinds_[found.least_of].number]->finish;
  return (found.least + finish) * slowest_over_mean_;
}

}  // namespace sim
