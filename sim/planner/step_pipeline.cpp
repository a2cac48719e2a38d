#include "sim/planner/step_pipeline.h"

#include <algorithm>

#include "sim/cost/stragglers.h"
#include "sim/plan/layer_division.h"

namespace sim {
namespace {

// Micro-batches that pass through each chunk in a step.
std::int32_t micro_batches_of_chunk(const Schedule& s) {
  return s.placement == Placement::two_directions ? s.micro_batches / 2 : s.micro_batches;
}

// The time of a micro-batch's backward pass where a schedule runs some whole and some in two parts: the less
// of both. 0: the schedule has none of a sort.
Seconds of_either(Seconds whole, Seconds parts) {
  return whole.value > 0 && parts.value > 0 ? std::min(whole, parts) : std::max(whole, parts);
}

}  // namespace

PassTimer StepPipeline::timer(const Scenario& s, const StepStates* states) const {
  return {s, passes_.compute_, states, passes_.software_, micro_batches_of_chunk(facts_.placement) == 1};
}

StepPasses::Cut& StepPasses::cut(const Scenario& s) {
  const auto [it, added] =
      cuts_.try_emplace({pieces_of(s.strategy), backward_parts(s.strategy.schedule)}, passes_memory_.get());
  Cut& cut = it->second;
  if (!added) return cut;
  cut.pieces = pieces_of(s, blocks_.blocks().kinds);
  cut.memory.reserve(cut.pieces.distinct.size());
  for (const Piece& p : cut.pieces.distinct) cut.memory.push_back(memory_.of(p, s));
  return cut;
}

StepPasses::Cut::Passes& StepPasses::priced(Cut& cut, const PassTimer& timer, const PassKind& kind) {
  const auto [known, added] = cut.passes.try_emplace({kind.code(), timer.exchange(kind)});
  Cut::Passes& passes = known->second;
  if (added)
    for (const Piece& p : cut.pieces.distinct)
      passes.priced.push_back(timer.pass(p, kind, passes_memory_.get()));
  return passes;
}

const PassTime* StepPasses::passes_of(Cut& cut, const PassTimer& timer, PassKind kind, int ahead) {
  kind = timer.normal(kind);
  Cut::Passes& passes = priced(cut, timer, kind);
  const auto place = static_cast<std::size_t>(timer.gathers(kind) ? ahead : 0);
  if (place >= passes.times.size()) passes.times.resize(place + 1);
  if (passes.times[place]) return passes.times[place];
  std::pmr::polymorphic_allocator<PassTime> allocator(passes_memory_.get());
  PassTime* const times = allocator.allocate(cut.pieces.distinct.size());
  for (std::size_t p = 0; p < cut.pieces.distinct.size(); ++p)
    allocator.construct(times + p, time_pass(passes.priced[p].steps, passes.priced[p].begin, ahead));
  return passes.times[place] = times;
}

StepPipeline::StepPipeline(const Scenario& s, StepPasses& passes, const ScheduleFacts& facts)
    : passes_(passes),
      cut_(passes.cut(s)),
      facts_(facts),
      slowest_over_mean_(1 + waiting_over_mean(s, s.hardware)),
      chunks_(static_cast<std::size_t>(facts.placement.chunks)),
      memory_(cut_.pieces.distinct, cut_.memory, passes.memory_.once_per_stage(s.workload.micro_batch_size),
              micro_batches_of_chunk(facts.placement)) {
  for (const Piece& p : cut_.pieces.distinct) most_ahead_ = std::max(most_ahead_, p.units() - 1);
  find_kinds();
  for (const Kind& kind : kinds_) memory_.add(kind.chunks, kind.units.counts());
  memory_.find_moments(kind_of_stage_, facts_.in_flight);
  least_ = least_of_passes(s, nullptr);
  constexpr std::size_t kUsual = 64;  // so that most lists of exchanges are allocated once
  ends_.reserve(kUsual * kinds_.size());
}

void StepPipeline::find_kinds() {
  const Schedule& placement = facts_.placement;
  const auto stages = static_cast<std::size_t>(placement.stages);
  kind_of_stage_.reserve(stages);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const auto piece = [&](std::size_t chunk) {
      return cut_.pieces.of_piece[static_cast<std::size_t>(
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
            : static_cast<std::size_t>(std::ranges::find_if(kinds_, is) - kinds_.begin());
    if (same == kinds_.size()) {
      Kind& kind = kinds_.emplace_back();
      kind.units.at_an_end = at_an_end;
      for (std::size_t c = 0; c < chunks_; ++c) {
        kind.chunks.push_back(piece(c));
        kind.units.add(cut_.pieces.distinct[kind.chunks.back()]);
      }
      kind.number =
          passes_.stage_numbers_.try_emplace(kind.units, passes_.stage_numbers_.size()).first->second;
    }
    kind_of_stage_.push_back(same);
    piece_of_.insert(piece_of_.end(), kinds_[same].chunks.begin(), kinds_[same].chunks.end());
  }
}

// A stage works on all micro-batches one after the other. Before its first forward pass one micro-batch is
// passed through all pieces before, and after its last backward pass (but for gradients of weights, which
// nobody waits for) one is passed back through them.
Seconds StepPipeline::least_of_passes(const Scenario& s, const StepStates* states) {
  const Schedule& placement = facts_.placement;
  const double micro_batches = micro_batches_of_chunk(placement);
  const PassTimer of_passes = timer(s, states);
  const BackwardParts parts = backward_parts(s.strategy.schedule);
  struct Durations {
    EnumArray<Pass, Seconds> of;  // 0: of a pass that the schedule does not have
    Seconds exchanged;
    Seconds back() const { return of_either(of[Pass::backward], of[Pass::backward_input]); }
  };
  thread_local std::vector<Durations> durations;  // both vectors are kept from one pipeline to the next
  durations.assign(cut_.pieces.distinct.size(), {});
  for (const Pass pass : kAll<Pass>) {
    if (!has_pass(parts, pass)) continue;
    const StepPasses::Cut::Passes& passes = passes_.priced(cut_, of_passes, of_passes.least(pass));
    // Where some backward passes are whole, their parts exchange no less.
    const bool counts = pass == Pass::forward || pass == Pass::backward || parts == BackwardParts::all_split;
    for (std::size_t p = 0; p < durations.size(); ++p) {
      const LeastOfPass least = least_of(passes.priced[p].steps);
      durations[p].of[pass] = least.compute;
      if (counts) durations[p].exchanged += least.collectives;
    }
  }
  struct Way {
    Seconds forward, backward;
  };
  thread_local std::vector<Way> before;  // by piece
  before.clear();
  Way sum{};
  for (std::size_t p = 0; p < cut_.pieces.of_piece.size(); ++p) {
    before.push_back(sum);
    const Durations& passes = durations[cut_.pieces.of_piece[p]];
    sum.forward += passes.of[Pass::forward];
    sum.backward += passes.back();
  }
  Seconds least;
  for (std::int32_t stage = 0; stage < placement.stages; ++stage) {
    Seconds all, without_weights, exchanged;
    Way first = sum;
    for (std::int32_t c = 0; c < placement.chunks; ++c) {
      const auto piece = static_cast<std::size_t>(placement.piece(stage, c));
      const Durations& p = durations[cut_.pieces.of_piece[piece]];
      all += p.of[Pass::forward] +
             of_either(p.of[Pass::backward], p.of[Pass::backward_input] + p.of[Pass::backward_weight]);
      without_weights += p.of[Pass::forward] + p.back();
      exchanged += p.exchanged;
      first.forward = std::min(first.forward, before[piece].forward);
      first.backward = std::min(first.backward, before[piece].backward);
    }
    least = std::max({least, exchanged * micro_batches, first.forward + all * micro_batches,
                      first.forward + without_weights * micro_batches + first.backward});
  }
  return least;
}

const StageStates& StepPipeline::states_of(std::size_t kind, const UnitCounts& units, const Scenario& s,
                                           const StepStates& states) const {
  std::vector<std::optional<StageStates>>& known = states.unbucketed.of_stages;
  const std::size_t number = kinds_[kind].number;
  if (known.size() <= number) known.resize(passes_.stage_numbers_.size());
  if (!known[number]) known[number] = stage_states(s, states.unbucketed.memory, units);
  return *known[number];
}

Bytes StepPipeline::memory(const Scenario& s, const StepStates& states) const {
  return memory_.peak(s, states.unbucketed.memory, states.bucket,
                      [&](std::size_t kind, const UnitCounts& units) -> const StageStates& {
                        return states_of(kind, units, s, states);
                      });
}

PipelineMemory::Bounds StepPipeline::memory_bounds(const Scenario& s, const StepStates& states) const {
  return memory_.bounds(s, [&](std::size_t kind, const UnitCounts& units) -> const StageStates& {
    return states_of(kind, units, s, states);
  });
}

std::span<const ChunkPasses> StepPipeline::exchanging(const Scenario& s, const StepStates& states,
                                                      int ahead) {
  const auto [known, added] = cut_.exchanging.try_emplace({states.exchange, ahead});
  std::pmr::vector<ChunkPasses>& passes = known->second;
  if (!added) return passes;
  const PassTimer of_passes = timer(s, &states);
  const BackwardParts parts = backward_parts(s.strategy.schedule);
  passes.resize(cut_.pieces.distinct.size());
  for (std::size_t k = 0; k < kPassKinds.size(); ++k) {
    if (!has_pass(parts, kPassKinds[k].pass)) continue;
    const PassTime* const of_pieces = passes_.passes_of(cut_, of_passes, kPassKinds[k], ahead);
    for (std::size_t p = 0; p < passes.size(); ++p) passes[p][k] = of_pieces + p;
  }
  return passes;
}

std::vector<const Piece*> StepPipeline::pieces_of(const Kind& kind) const {
  std::vector<const Piece*> pieces;
  for (const std::size_t chunk : kind.chunks) pieces.push_back(&cut_.pieces.distinct[chunk]);
  return pieces;
}

const EndsOfStages& StepPipeline::ends_of(const Scenario& s, const StepStates& states) const {
  EndsOfStages& known = reduces_beside(s) ? states.unbucketed.ends : states.ends;
  for (const Kind& kind : kinds_) {
    if (known.size() <= kind.number) known.resize(passes_.stage_numbers_.size());
    std::optional<StageEnds>& ends = known[kind.number];
    if (!ends)
      ends = stage_ends(s, kind.units.runs, pieces_of(kind), kind.units.at_an_end, states, passes_.software_);
  }
  return known;
}

// How much longer compute takes when exchanges of this length run beside it from its beginning on.
Seconds StepPipeline::slower_beside(Seconds exchanged, Seconds compute) const {
  const double slowdown = passes_.software_.interference.compute;
  return std::max(Seconds{}, std::min(exchanged, compute * slowdown)) * (1 - 1 / slowdown);
}

std::size_t StepPipeline::ask(const Scenario& s, const StepStates& states) {
  const int ahead = s.strategy.zero_stage == 3 ? std::min(s.strategy.prefetch, most_ahead_) : 0;
  const auto place = static_cast<std::size_t>(states.exchange) * (static_cast<std::size_t>(most_ahead_) + 1) +
                     static_cast<std::size_t>(ahead);
  if (place >= numbered_.size()) numbered_.resize(place + 1, -1);
  if (numbered_[place] >= 0) return static_cast<std::size_t>(numbered_[place]);
  const std::size_t number = ends_.size() / kinds_.size();
  numbered_[place] = static_cast<std::int32_t>(number);
  ends_.resize(ends_.size() + kinds_.size());
  std::vector<PipelinePasses>& runs = passes_.runs_;
  if (runs.size() == asked_.size()) runs.emplace_back();
  PipelinePasses& run = runs[asked_.size()];
  asked_.push_back(number);
  run.passes = exchanging(s, states, ahead);
  run.begin.clear();
  run.first_forward.clear();
  const bool gathers = gathers_ahead(s);
  const EndsOfStages& all_ends = ends_of(s, states);
  for (std::size_t stage = 0; stage < kind_of_stage_.size(); ++stage) {
    const Kind& kind = kinds_[kind_of_stage_[stage]];
    Seconds gathered, launched;  // parameters arrive one after the other
    for (std::size_t c = 0; gathers && c < chunks_; ++c) {
      const GathersAhead& g = run.passes[kind.chunks[c]][c == 0 ? kFirstOfStage : kFirstForward]->ahead;
      run.first_forward.push_back(
          std::max(gathered + g.compute_from_collectives, launched + g.compute_from_host));
      gathered = std::max(gathered + g.collectives, launched + g.collectives_from_host);
      launched += g.launches;
    }
    const StageEnds& once = *all_ends[kind.number];
    const Seconds slower = slower_beside(gathered - once.host_begin, once.begin - once.host_begin);
    run.begin.push_back({once.begin + slower, gathered, {}, once.host_begin});
  }
  return number;
}

void StepPipeline::run_asked() {
  if (asked_.empty()) return;
  thread_local std::vector<StageEnd> ends;
  facts_.order().run({passes_.runs_.data(), asked_.size()}, piece_of_, passes_.transfers_,
                     passes_.software_.hosts, ends);
  auto e = ends.begin();
  for (const std::size_t number : asked_) {
    StageEnd* const of_kinds = ends_.data() + number * kinds_.size();
    for (std::size_t stage = 0; stage < kind_of_stage_.size(); ++stage, ++e)
      for (const auto t : {&StageEnd::compute, &StageEnd::collectives, &StageEnd::sends, &StageEnd::host}) {
        Seconds& latest = of_kinds[kind_of_stage_[stage]].*t;
        latest = std::max(latest, (*e).*t);
      }
  }
  asked_.clear();
}

Seconds StepPipeline::time(const Scenario& s, const StepStates& states) {
  const std::size_t asked = ask(s, states);
  run_asked();
  return time(s, states, asked);
}

Seconds StepPipeline::time(const Scenario& s, const StepStates& states, std::size_t asked) {
  Seconds latest;
  const StageEnd* e = ends_.data() + asked * kinds_.size();
  const EndsOfStages& all_ends = ends_of(s, states);
  for (const Kind& kind : kinds_) {
    const FromEach& finish = all_ends[kind.number]->finish;
    latest = std::max({latest, e->compute + finish[kFromCompute], e->collectives + finish[kFromCollectives],
                       e->sends + finish[kFromSends]});
    if (passes_.software_.hosts) latest = std::max(latest, e->host + finish[kFromHost]);
    ++e;
  }
  return latest * slowest_over_mean_;
}

Seconds StepPipeline::least_time(const Scenario& s, const StepStates& states) {
  const auto place = static_cast<std::size_t>(states.exchange);
  if (place >= least_with_.size()) least_with_.resize(place + 1, kNever);
  if (least_with_[place] == kNever) least_with_[place] = least_of_passes(s, &states);
  // Whichever stage is the last to end its passes.
  const EndsOfStages& all_ends = ends_of(s, states);
  Seconds finish = all_ends[kinds_.front().number]->finish[kFromCompute];
  for (const Kind& kind : kinds_) finish = std::min(finish, all_ends[kind.number]->finish[kFromCompute]);
  return (least_with_[place] + finish) * slowest_over_mean_;
}

}  // namespace sim
