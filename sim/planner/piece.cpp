#include "sim/planner/piece.h"

#include <algorithm>
#include <utility>

#include "sim/plan/layer_division.h"
#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"

namespace sim {

std::int32_t Piece::layers() const {
  std::int32_t n = 0;
  for (const Run& r : runs) n += r.layers;
  return n;
}

std::vector<Piece> pieces_of(const Scenario& s, const std::vector<LayerKind>& kinds) {
  std::vector<Piece> pieces(static_cast<std::size_t>(pieces_of(s.strategy)));
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    Piece& piece = pieces[p];
    piece.first = p == 0;
    piece.last = p + 1 == pieces.size();
    const LayerRange range = layers_of(s, static_cast<std::int32_t>(p));
    for (std::int32_t l = range.first; l < range.last; ++l) {
      const LayerKind kind = kind_of_layer(s, l);
      const auto at = static_cast<std::size_t>(std::find(kinds.begin(), kinds.end(), kind) - kinds.begin());
      if (piece.runs.empty() || piece.runs.back().kind != at) piece.runs.push_back({at, kind.experts, 0});
      ++piece.runs.back().layers;
    }
  }
  return pieces;
}

namespace {

using Unit = ActionTime UnitTimes::*;
Unit unit_of(const Piece::Run& r) {
  return r.experts ? &UnitTimes::expert_layer : &UnitTimes::layer;
}

// Visits the runs of some of a piece's layers, from the first to the last or back: visit(run, layers).
template <class Visit>
void for_each_run(const Piece& piece, std::int32_t first, std::int32_t last, Visit visit) {
  std::int32_t begin = 0;
  for (const Piece::Run& r : piece.runs) {
    const std::int32_t n = std::min(last, begin + r.layers) - std::max(first, begin);
    if (n > 0) visit(r, n);
    begin += r.layers;
  }
}
template <class Visit>
void for_each_run_back(const Piece& piece, std::int32_t first, std::int32_t last, Visit visit) {
  std::int32_t end = piece.layers();
  for (std::size_t i = piece.runs.size(); i-- > 0;) {
    const Piece::Run& r = piece.runs[i];
    const std::int32_t n = std::min(last, end) - std::max(first, end - r.layers);
    if (n > 0) visit(r, n);
    end -= r.layers;
  }
}

// Steps of a pass in the order in which plan/stage_program.h has their actions: gradients go when as many
// layers as a bucket holds have them, when a unit of another sort has, or at the pass's end.
class StepList {
 public:
  // What is gathered, and the gradients that are reduced, by whose times; null: nothing.
  StepList(const StateTimes& states, const UnitTimes* gather, const HostWork& of_gather,
           const UnitTimes* reduce)
      : states_(states), gather_(gather), of_gather_(of_gather), reduce_(reduce) {
    constexpr std::size_t kUsual = 8;  // so that most lists are allocated once
    steps_.reserve(kUsual);
  }

  void add(Unit unit, UnitStep step, bool reduces) {
    if (step.count <= 0) return;
    if (gather_ && step.reads) {
      step.gather = gather_->*unit;
      step.gather.work = of_gather_;
    }
    if (!reduce_ || !reduces) return steps_.push_back(step);
    if (bucketed_ > 0 && unit != of_bucket_) {
      const std::int32_t others = step.count - 1;
      step.count = 1;
      add_reducing(unit, step, bucket());
      step.count = others;
    }
    add_reducing(unit, step, {});
  }

  std::vector<UnitStep> take() {
    if (bucketed_ > 0) {
      UnitStep& last = last_alone();
      last.reduce = in_turn(last.reduce, bucket());
    }
    return std::move(steps_);
  }

 private:
  void add_reducing(Unit unit, UnitStep step, const ActionTime& earlier) {
    const std::int32_t most = unit == &UnitTimes::layer          ? states_.bucket.dense
                              : unit == &UnitTimes::expert_layer ? states_.bucket.experts
                                                                 : 1;
    if (most <= 1) {
      if (step.count <= 0) return;
      step.reduce = in_turn(earlier, reduce_->*unit);
      steps_.push_back(step);
      return;
    }
    of_bucket_ = unit;
    step.reduce = earlier;
    while (step.count > 0) {
      UnitStep some = step;
      some.count = std::min(step.count, most - bucketed_);
      bucketed_ += some.count;
      step.count -= some.count;
      if (bucketed_ == most) {
        --some.count;
        if (some.count > 0) steps_.push_back(some);
        some.count = 1;
        some.reduce = in_turn(some.reduce, bucket());
      }
      steps_.push_back(some);
    }
  }

  // The message of what is there, then what replicas sum, layer by layer.
  ActionTime bucket() {
    const std::int32_t n = std::exchange(bucketed_, 0);
    const auto& messages =
        of_bucket_ == &UnitTimes::expert_layer ? states_.reduce_expert_layers : states_.reduce_layers;
    const auto found = messages.find(n);
    const ActionTime message =
        found != messages.end() ? found->second : repeated(states_.reduce.*of_bucket_, n);
    const ActionTime& others = states_.only_last.*of_bucket_;
    return reduce_ == &states_.reduce_last && is_there(others) ? in_turn(message, repeated(others, n))
                                                               : message;
  }

  UnitStep& last_alone() {
    UnitStep& last = steps_.back();
    if (last.count == 1) return last;
    UnitStep alone = last;
    alone.count = 1;
    --last.count;
    steps_.push_back(alone);
    return steps_.back();
  }

  const StateTimes& states_;
  const UnitTimes* gather_;
  const HostWork& of_gather_;
  const UnitTimes* reduce_;
  std::vector<UnitStep> steps_;
  Unit of_bucket_ = nullptr;
  std::int32_t bucketed_ = 0;  // layers that wait for others
};

}  // namespace

PassTimer::PassTimer(const Scenario& scenario, const ComputeTimes& compute, const StateTimes& states,
                     const StepSoftware& software)
    : scenario_(scenario),
      strategy_(scenario.strategy),
      compute_(compute),
      states_(states),
      software_(software) {}

bool PassTimer::gathers_ahead() const {
  return scenario_.implementation.data_parallel.overlaps_gather &&
         (strategy_.zero_stage == 1 || strategy_.zero_stage == 2);
}

bool reduces_beside(const Scenario& s) {
  const DataParallelProfile& profile = s.implementation.data_parallel;
  const int zero = s.strategy.zero_stage;
  return zero >= 2 || (zero == 1 ? profile.overlaps_sharded_reduction : profile.overlaps_reduction);
}

// A tied embedding's gradients come from micro-batches of both directions.
bool PassTimer::defers_embedding() const {
  return scenario_.model.tie_word_embeddings && placement_of(strategy_.schedule) == Placement::two_directions;
}

std::vector<ActionTime> PassTimer::reductions_after_passes(const std::vector<const Piece*>& pieces) const {
  std::vector<ActionTime> messages;
  const auto add = [&](const ActionTime& message, std::int32_t count) {
    if (is_there(message)) messages.push_back(repeated(message, count));
  };
  for (const Piece* piece : pieces) {
    if (reduces_beside(scenario_)) break;
    StepList steps(states_, nullptr, software_.gather, &states_.reduce_last);
    if (piece->last) steps.add(&UnitTimes::head, {}, true);
    for (std::size_t i = piece->runs.size(); i-- > 0;)
      steps.add(unit_of(piece->runs[i]), {.count = piece->runs[i].layers}, true);
    if (piece->first && !defers_embedding()) steps.add(&UnitTimes::embedding, {}, true);
    for (const UnitStep& s : steps.take()) add(s.reduce, s.count);
  }
  for (const Piece* piece : pieces)
    if (piece->first && defers_embedding()) add(states_.reduce_last.embedding, 1);
  return messages;
}

const UnitTimes* PassTimer::reduced(Reduce reduce) const {
  return reduce == Reduce::none ? nullptr : reduce == Reduce::each ? &states_.reduce : &states_.reduce_last;
}

std::vector<UnitStep> PassTimer::forward(const Piece& piece, const UnitTimes* gather) const {
  StepList steps(states_, gather, software_.gather, nullptr);
  if (piece.first) steps.add(&UnitTimes::embedding, {.compute = compute_.embedding}, false);
  for (const Piece::Run& r : piece.runs)
    steps.add(unit_of(r), {.compute = compute_.layers[r.kind].forward, .count = r.layers}, false);
  if (piece.last) steps.add(&UnitTimes::head, {.compute = compute_.head}, false);
  return with_work(steps.take());
}

std::vector<UnitStep> PassTimer::backward(const Piece& piece, ActionTime LayerTimes::*pass,
                                          Reduce reduce) const {
  const bool of_layers = pass == &LayerTimes::backward;
  StepList steps(states_, strategy_.zero_stage == 3 ? &states_.gather_for_backward : nullptr,
                 software_.gather, reduced(reduce));
  const auto zeroed = [&](Unit unit) {
    return strategy_.zero_stage >= 2 ? states_.zero_whole.*unit : ActionTime{};
  };
  const bool fresh = scenario_.implementation.memory.weight_gradient == WeightGradient::fresh;
  const auto begun = [&](Unit unit) { return fresh ? states_.zero.*unit : ActionTime{}; };
  const auto add = [&](Unit unit, const ActionTime& compute, std::int32_t count, bool reads, bool reduces) {
    steps.add(
        unit,
        {.before = zeroed(unit), .compute = compute, .begin = begun(unit), .count = count, .reads = reads},
        reduces);
  };
  if (piece.last) add(&UnitTimes::head, compute_.head_backward, 1, true, true);
  const std::int32_t interval = recompute_interval(strategy_, piece.layers());
  if (interval == 1) {
    for (std::size_t i = piece.runs.size(); i-- > 0;) {
      const Piece::Run& r = piece.runs[i];
      const LayerTimes& layer = compute_.layers[r.kind];
      if (is_there(layer.recompute_last))
        steps.add(unit_of(r),
                  {.recompute = layer.recompute_last,
                   .before = zeroed(unit_of(r)),
                   .compute = layer.*pass,
                   .begin = begun(unit_of(r)),
                   .count = r.layers},
                  of_layers);
      else
        add(unit_of(r), layer.*pass, r.layers, true, of_layers);
    }
  } else {
    // A group's layers run forward again, then backward with the parameters that are there.
    for (std::int32_t end = piece.layers(); end > 0;) {
      const std::int32_t first = (end - 1) / interval * interval;
      for_each_run(piece, first, end - 1, [&](const Piece::Run& r, std::int32_t n) {
        steps.add(unit_of(r), {.compute = compute_.layers[r.kind].recompute, .count = n}, false);
      });
      for_each_run(piece, end - 1, end, [&](const Piece::Run& r, std::int32_t n) {
        steps.add(unit_of(r), {.compute = compute_.layers[r.kind].recompute_last, .count = n}, false);
      });
      for_each_run_back(piece, first, end, [&](const Piece::Run& r, std::int32_t n) {
        add(unit_of(r), compute_.layers[r.kind].*pass, n, false, of_layers);
      });
      end = first;
    }
  }
  if (piece.first) add(&UnitTimes::embedding, compute_.embedding_backward, 1, true, !defers_embedding());
  return with_work(steps.take());
}

std::vector<UnitStep> PassTimer::weights(const Piece& piece, Reduce reduce) const {
  StepList steps(states_, nullptr, software_.gather, reduced(reduce));
  for (std::size_t i = piece.runs.size(); i-- > 0;) {
    const Piece::Run& r = piece.runs[i];
    steps.add(unit_of(r), {.compute = compute_.layers[r.kind].weight, .count = r.layers}, true);
  }
  return with_work(steps.take());
}

std::vector<UnitStep> PassTimer::with_work(std::vector<UnitStep> steps) const {
  if (!steps.empty()) {
    if (steps.front().count > 1) {
      UnitStep first = steps.front();
      --steps.front().count;
      first.count = 1;
      steps.insert(steps.begin(), first);
    }
    first_of(steps.front()).work = software_.pass;
  }
  return steps;
}

// What earlier collectives, that this pass does not wait for, make of it.
void PassTimer::add_slowdown(PassTime& pass, Seconds compute) const {
  const double slowdown = software_.interference.compute;
  pass.slower = 1 - 1 / slowdown;
  pass.most_slower = std::max(Seconds{}, compute * slowdown - pass.duration);
}

PassTime PassTimer::exchanging(const std::vector<UnitStep>& steps, std::int32_t prefetch,
                               const PassTime& plain) const {
  if (steps.empty()) return {};
  PassTime pass = plain;
  constexpr Seconds kLongAgo{-1e6};
  DeviceClock clock(software_.interference, false);
  clock.skip({}, kLongAgo, kLongAgo);
  run_pass(clock, steps, prefetch, {.begins = false});
  pass.duration = clock.free(kComputeStream);
  pass.collectives_after_compute = std::max(kNever, clock.free(kCollectiveStream));
  bool gathers = false;
  for (const UnitStep& s : steps) {
    gathers = gathers || is_there(s.gather);
    pass.collectives += (s.gather.duration + s.reduce.duration) * s.count;
    pass.host.launches += (s.gather.host.launches + s.gather.work.before + s.reduce.host.launches) * s.count;
  }
  // The first gather waits for earlier collectives as it does for earlier compute.
  if (gathers)
    pass.compute_after_collectives = pass.duration;
  else
    add_slowdown(pass, compute_of(steps).duration);
  if (plain.host.launches.value > 0) pass.host.ahead += pass.duration - plain.duration;
  return pass;
}

namespace {

// A pass without exchanges, as a whole.
PassTime alone(const std::vector<UnitStep>& steps) {
  const ActionTime t = compute_of(steps);
  return {.duration = t.duration, .host = t.host, .work = t.work};
}

constexpr std::int32_t kFarAhead = 15;  // of gathers that nothing holds back

}  // namespace

ChunkPasses PassTimer::plain(const Piece& piece) const {
  const BackwardParts parts = backward_parts(strategy_.schedule);
  ChunkPasses passes;
  passes.forward = passes.first_forward = alone(forward(piece, nullptr));
  if (parts != BackwardParts::all_split)
    passes.backward = passes.last_backward = alone(backward(piece, &LayerTimes::backward, Reduce::none));
  if (parts != BackwardParts::whole) {
    passes.input = passes.last_input = alone(backward(piece, &LayerTimes::input, Reduce::none));
    passes.weight = passes.last_weight = alone(weights(piece, Reduce::none));
  }
  return passes;
}

ChunkSteps PassTimer::steps(const Piece& piece) const {
  const BackwardParts parts = backward_parts(strategy_.schedule);
  const Reduce last = reduces_beside(scenario_) ? Reduce::last : Reduce::none,
               each = strategy_.zero_stage >= 2 ? Reduce::each : Reduce::none;
  ChunkSteps chunk;
  chunk.prefetch = strategy_.prefetch;
  chunk.of(&ChunkPasses::forward) =
      forward(piece, strategy_.zero_stage == 3 ? &states_.gather_for_forward : nullptr);
  chunk.of(&ChunkPasses::first_forward) = chunk.of(&ChunkPasses::forward);
  if (parts != BackwardParts::all_split) {
    chunk.of(&ChunkPasses::backward) = backward(piece, &LayerTimes::backward, each);
    chunk.of(&ChunkPasses::last_backward) = backward(piece, &LayerTimes::backward, last);
  }
  if (parts != BackwardParts::whole) {
    chunk.of(&ChunkPasses::input) = backward(piece, &LayerTimes::input, each);
    chunk.of(&ChunkPasses::last_input) = backward(piece, &LayerTimes::input, last);
    chunk.of(&ChunkPasses::weight) = weights(piece, each);
    chunk.of(&ChunkPasses::last_weight) = weights(piece, last);
  }
  return chunk;
}

void PassTimer::gather_ahead(const Piece& piece, ChunkSteps& chunk, DeviceClock& clock) const {
  std::vector<UnitStep>& steps = chunk.of(&ChunkPasses::first_forward);
  std::vector<UnitStep> gathers = forward(piece, &states_.gather_updated);
  for (std::size_t i = 0; i < gathers.size(); ++i) {
    if (!is_there(gathers[i].gather)) continue;
    ActionTime one = gathers[i].gather;
    one.work = {};
    const DeviceClock::Span span = clock.run(kCollectiveStream, one);
    steps[i].there = span.end;
    if (gathers[i].count > 1) {
      const Seconds last = clock.run(kCollectiveStream, repeated(one, gathers[i].count - 1)).end;
      steps[i].each_later = (last - span.end) * (1.0 / (gathers[i].count - 1));
    }
  }
}

// Where accumulators are not set to zero before.
ActionTime PassTimer::begin_gradients(const Piece& piece) const {
  ActionTime all;
  if (scenario_.implementation.memory.weight_gradient != WeightGradient::fresh) return all;
  if (piece.last) all = in_turn(all, states_.zero.head);
  for (const Piece::Run& r : piece.runs) all = in_turn(all, repeated(states_.zero.*unit_of(r), r.layers));
  if (piece.first) all = in_turn(all, states_.zero.embedding);
  return all;
}

PassTime PassTimer::gathering(const ChunkPasses& plain, const ChunkSteps& steps) const {
  return exchanging(steps.of(&ChunkPasses::forward), strategy_.prefetch, plain.forward);
}

ChunkPasses PassTimer::with_exchanges(const Piece& piece, const ChunkPasses& plain, const ChunkSteps& steps,
                                      const PassTime& gathering) const {
  const BackwardParts parts = backward_parts(strategy_.schedule);
  const bool each = strategy_.zero_stage >= 2;
  ChunkPasses passes = plain;
  passes.begin_gradients = begin_gradients(piece);
  for (const auto pass : kPasses) add_slowdown(passes.*pass, (plain.*pass).duration);
  if (strategy_.zero_stage == 3) passes.forward = passes.first_forward = gathering;
  if (gathers_ahead()) {
    const PassTime first = exchanging(forward(piece, &states_.gather_updated), kFarAhead, plain.forward);
    passes.first_forward.compute_after_collectives = first.compute_after_collectives;
    passes.first_forward.collectives = first.collectives;
  }
  if (!each && !reduces_beside(scenario_)) return passes;
  const UnitTimes& last = states_.only_last;
  const bool last_differs = !each || is_there(last.embedding) || is_there(last.layer) ||
                            is_there(last.expert_layer) || is_there(last.head);
  const auto set = [&](PassTime ChunkPasses::*usual, PassTime ChunkPasses::*of_last) {
    const auto with = [&](PassTime ChunkPasses::*pass) {
      return exchanging(steps.of(pass), strategy_.prefetch, plain.*usual);
    };
    if (each) passes.*usual = passes.*of_last = with(usual);
    if (last_differs) passes.*of_last = with(of_last);
  };
  if (parts != BackwardParts::all_split) set(&ChunkPasses::backward, &ChunkPasses::last_backward);
  if (parts != BackwardParts::whole) {
    set(&ChunkPasses::input, &ChunkPasses::last_input);
    set(&ChunkPasses::weight, &ChunkPasses::last_weight);
  }
  return passes;
}

bool PassTimer::exchanges_hide(const Piece& piece, const ChunkPasses& passes) const {
  // What is still reduced when the next pass begins, whose first gather comes after it.
  constexpr double kNegligible = 0.005;
  const bool whole = passes.weight.duration.value == 0;
  const PassTime& last = whole ? passes.last_backward : passes.last_weight;
  if (last.collectives_after_compute - last.duration >
      (passes.forward.duration + passes.backward.duration + passes.input.duration + passes.weight.duration) *
          kNegligible)
    return false;
  return gathers_hide(piece);
}

bool PassTimer::gathers_hide(const Piece& piece) const {
  if (strategy_.prefetch < 1) return false;
  const double window = strategy_.prefetch;
  const UnitTimes &forward = states_.gather_for_forward, &backward = states_.gather_for_backward;
  const bool splits = backward_parts(strategy_.schedule) != BackwardParts::whole;
  for (const Piece::Run& r : piece.runs) {
    const LayerTimes& layer = compute_.layers[r.kind];
    const Unit unit = unit_of(r);
    const Seconds ahead = layer.forward.duration,
                  back = (splits ? layer.input.duration : layer.backward.duration) +
                         layer.recompute_last.duration;
    const std::int32_t bucket = states_.bucket.of(r.experts);
    const Seconds reduced = splits ? Seconds{} : (states_.reduce_last.*unit).duration;
    if ((forward.*unit).duration > ahead) return false;
    if ((backward.*unit).duration + reduced > back) return false;
    if ((backward.*unit).duration + reduced * bucket > back * window) return false;
    if (piece.last && (forward.head.duration > ahead * window ||
                       states_.reduce_last.head.duration + (backward.*unit).duration > back * window))
      return false;
  }
  return true;
}

void PassTimer::add_gathers(const Piece& piece, const UnitTimes& gather, bool forward, Exchanged& sum) const {
  const auto add = [&](const ActionTime& unit, std::int32_t n) {
    sum.gathers += unit.duration * n;
    if (is_there(unit)) sum.launches += (unit.host.launches + software_.gather.before) * n;
  };
  if (piece.first && forward) add(gather.embedding, 1);
  for (const Piece::Run& r : piece.runs) add(gather.*unit_of(r), r.layers);
  if (piece.last) add(gather.head, 1);
  const bool begins_at_edge = forward ? piece.first : piece.last;
  sum.first_gather = begins_at_edge ? (forward ? gather.embedding : gather.head).duration
                     : piece.runs.empty()
                         ? Seconds{}
                         : (gather.*unit_of(forward ? piece.runs.front() : piece.runs.back())).duration;
  // A first layer's parameters come after the embedding's.
  if (forward && piece.first && !piece.runs.empty())
    sum.first_gather +=
        std::max(Seconds{}, (gather.*unit_of(piece.runs.front())).duration - compute_.embedding.duration);
}

Seconds PassTimer::first_gather(const Piece& piece) const {
  Exchanged sum{};
  add_gathers(piece, states_.gather_for_forward, true, sum);
  return sum.first_gather;
}

Seconds PassTimer::launches_of_first_gathers(const Piece& piece) const {
  if (piece.runs.empty()) return {};
  const ActionTime& layer = states_.gather_for_forward.*unit_of(piece.runs.front());
  return (layer.host.launches + software_.gather.before) * (1 + strategy_.prefetch);
}

void PassTimer::add_reductions(const Piece& piece, bool of_edges, bool of_layers, bool last,
                               Exchanged& sum) const {
  const UnitTimes& reduce = last ? states_.reduce_last : states_.reduce;
  const auto add = [&](const ActionTime& message, std::int32_t n) {
    sum.reductions += message.duration * n;
    sum.launches += message.host.launches * n;
    if (n > 0) sum.last_reduction = message.duration;
  };
  if (of_edges && piece.last) {
    add(reduce.head, 1);
    sum.before_reductions = compute_.head_backward.duration;
    if (!of_layers) {
      Seconds layers;
      for (const Piece::Run& r : piece.runs) {
        const LayerTimes& layer = compute_.layers[r.kind];
        layers += (layer.recompute_last.duration + layer.input.duration) * r.layers;
      }
      sum.last_reduction = std::max(Seconds{}, sum.last_reduction - layers);
    }
  }
  for (std::size_t i = piece.runs.size(); of_layers && i > 0;) {
    Piece::Run r = piece.runs[--i];
    // Layers of other kinds share a bucket where they have the same parameters.
    while (i > 0 && piece.runs[i - 1].experts == r.experts) r.layers += piece.runs[--i].layers;
    const std::int32_t bucket = states_.bucket.of(r.experts);
    if (bucket <= 1) {
      add(reduce.*unit_of(r), r.layers);
      continue;
    }
    const auto& messages = r.experts ? states_.reduce_expert_layers : states_.reduce_layers;
    const auto message = [&](std::int32_t n) {
      const auto found = messages.find(n);
      ActionTime m = found != messages.end() ? found->second : repeated(states_.reduce.*unit_of(r), n);
      if (last) m = in_turn(m, repeated(states_.only_last.*unit_of(r), n));
      return m;
    };
    const std::int32_t rest = r.layers % bucket;
    if (r.layers >= bucket) add(message(bucket), r.layers / bucket);
    if (rest > 0) {
      const LayerTimes& layer = compute_.layers[r.kind];
      // Before those of a group that is recomputed as a whole, it is.
      const std::int32_t interval = recompute_interval(strategy_, piece.layers());
      const Seconds since = of_edges ? layer.backward.duration * rest +
                                           layer.recompute_last.duration * (rest / interval * interval)
                                     : layer.weight.duration * rest;
      const Seconds before = sum.last_reduction - since;
      add(message(rest), 1);
      sum.last_reduction += std::max(Seconds{}, before);
    }
  }
  if (of_edges && piece.first && !defers_embedding()) {
    // The layers' last message goes just before the embedding's.
    const Seconds before = sum.last_reduction - compute_.embedding_backward.duration;
    add(reduce.embedding, 1);
    sum.last_reduction += std::max(Seconds{}, before);
  }
}

PassTime PassTimer::hidden(const PassTime& plain, const Exchanged& sum, Seconds more_compute) const {
  PassTime pass = plain;
  const double slower = 1 - 1 / software_.interference.compute;
  const Seconds beside = sum.gathers - sum.first_gather + sum.reductions - sum.last_reduction;
  // Gathers that are not begun ahead stand in the way, and what is reduced before them with them.
  const bool ahead = strategy_.prefetch > 0 || sum.gathers.value == 0;
  pass.duration += more_compute + sum.first_gather + beside * (ahead ? slower : 1);
  pass.collectives = sum.gathers + sum.reductions;
  if (pass.collectives.value > 0)
    pass.collectives_after_compute =
        std::max(pass.duration + sum.last_reduction, sum.before_reductions + pass.collectives);
  if (sum.gathers.value > 0) pass.compute_after_collectives = pass.duration;
  pass.host.launches += sum.launches;
  if (plain.host.launches.value > 0) pass.host.ahead += pass.duration - plain.duration;
  return pass;
}

ChunkPasses PassTimer::with_hidden_exchanges(const Piece& piece, const ChunkPasses& plain) const {
  const BackwardParts parts = backward_parts(strategy_.schedule);
  const int zero = strategy_.zero_stage;
  ChunkPasses passes = plain;
  passes.begin_gradients = begin_gradients(piece);
  if (zero == 3 || gathers_ahead()) {
    Exchanged sum{};
    add_gathers(piece, zero == 3 ? states_.gather_for_forward : states_.gather_updated, true, sum);
    if (zero == 3) {
      passes.forward = passes.first_forward = hidden(plain.forward, sum, {});
    } else {
      // Gathered from the beginning of the step on, beside each other.
      passes.first_forward.compute_after_collectives =
          std::max(sum.first_gather + plain.forward.duration, sum.gathers);
      passes.first_forward.collectives = sum.gathers;
    }
  }
  if (!reduces_beside(scenario_)) return passes;
  Seconds zeroed;
  if (zero >= 2) {
    if (piece.first) zeroed += states_.zero_whole.embedding.duration;
    for (const Piece::Run& r : piece.runs) zeroed += (states_.zero_whole.*unit_of(r)).duration * r.layers;
    if (piece.last) zeroed += states_.zero_whole.head.duration;
  }
  const auto backward_pass = [&](const PassTime& without, bool of_edges, bool of_layers, bool last) {
    Exchanged sum{};
    if (zero == 3 && of_edges) add_gathers(piece, states_.gather_for_backward, false, sum);
    add_reductions(piece, of_edges, of_layers, last, sum);
    return hidden(without, sum, of_edges ? zeroed : Seconds{});
  };
  if (parts != BackwardParts::all_split) {
    passes.last_backward = backward_pass(plain.backward, true, true, true);
    if (zero >= 2) passes.backward = backward_pass(plain.backward, true, true, false);
  }
  if (parts != BackwardParts::whole) {
    passes.last_input = backward_pass(plain.input, true, false, true);
    passes.last_weight = backward_pass(plain.weight, false, true, true);
    if (zero >= 2) {
      passes.input = backward_pass(plain.input, true, false, false);
      passes.weight = backward_pass(plain.weight, false, true, false);
    }
  }
  return passes;
}

namespace {

// The once of a step of one stage.
class StageOnce {
 public:
  StageOnce(const Scenario& scenario, const Piece& units, const StateTimes& states,
            const StepSoftware& software)
      : scenario_(scenario), units_(units), states_(states), software_(software) {}

  void begin(DeviceClock& clock) const {
    if (scenario_.implementation.memory.weight_gradient == WeightGradient::fresh) return;
    ActionTime first = compute_of(each_unit(states_.zero));
    first.work = software_.around;
    first.work.before += scenario_.implementation.host.step;
    clock.run(kComputeStream, first);
  }

  // Of updated parameters.
  Seconds launches_of_gathers() const { return compute_of(each_unit(states_.gather_updated)).host.launches; }

  // `reductions`: what was not reduced beside passes.
  void finish(DeviceClock& clock, const std::vector<ActionTime>& reductions, bool gathers,
              bool at_an_end) const {
    const Seconds ready = clock.free(kComputeStream);
    for (const ActionTime& message : reductions) clock.run(kCollectiveStream, message, ready);
    ActionTime norm = states_.zero_norm;
    norm.work = software_.around;
    clock.run(kComputeStream, norm, clock.free(kCollectiveStream));
    ActionTime before = at_an_end ? states_.sum_tied_embedding : ActionTime{};
    before = in_turn(before, compute_of(each_unit(states_.unscale)));
    before = in_turn(before, states_.read_overflow);
    before = in_turn(before, compute_of(each_unit(states_.norm)));
    before = in_turn(before, in_turn(states_.sum_norm, states_.clip));
    clock.run(kComputeStream, before);
    if (scenario_.strategy.offload_optimizer) return update_on_host(clock, gathers);
    run_pass(clock, each_unit(states_.update, gathers ? &states_.gather_updated : nullptr), 0);
  }

 private:
  std::vector<UnitStep> each_unit(const UnitTimes& compute, const UnitTimes* exchange = nullptr) const {
    std::vector<UnitStep> steps;
    for_each_unit([&](ActionTime UnitTimes::*unit, std::int32_t count) {
      const ActionTime reduce = exchange ? exchange->*unit : ActionTime{};
      if (is_there(compute.*unit) || is_there(reduce))
        steps.push_back({.compute = compute.*unit, .reduce = reduce, .count = count});
    });
    return steps;
  }

  template <class Visit>
  void for_each_unit(Visit visit) const {
    if (units_.first) visit(&UnitTimes::embedding, 1);
    for (const Piece::Run& r : units_.runs) visit(unit_of(r), r.layers);
    if (units_.last) visit(&UnitTimes::head, 1);
  }

  // Gradients go out, the host updates, parameters come in: the slowest of the three sets the pace of units
  // alike.
  void update_on_host(DeviceClock& clock, bool gathers) const {
    const Seconds computed = clock.free(kComputeStream);
    for_each_unit([&](ActionTime UnitTimes::*u, std::int32_t count) {
      for (std::int32_t n = 0; n < count; ++n) {
        const Seconds out = clock.run(kToHostStream, states_.gradients_to_host.*u, computed).end;
        const Seconds updated = clock.run(kHostStream, states_.update.*u, out).end;
        const Seconds in = clock.run(kFromHostStream, states_.parameters_from_host.*u, updated).end;
        if (gathers && is_there(states_.gather_updated.*u))
          clock.run(kCollectiveStream, states_.gather_updated.*u, in);
      }
    });
  }

  const Scenario& scenario_;
  const Piece& units_;
  const StateTimes& states_;
  const StepSoftware& software_;
};

}  // namespace

void begin_stage(const Scenario& scenario, const Piece& units, const StateTimes& states,
                 const StepSoftware& software, DeviceClock& clock) {
  StageOnce(scenario, units, states, software).begin(clock);
}

void finish_stage(const Scenario& scenario, const Piece& units, const std::vector<const Piece*>& pieces,
                  bool at_an_end, const StateTimes& states, const StepSoftware& software,
                  DeviceClock& clock) {
  static const ComputeTimes none{};
  const PassTimer timer(scenario, none, states, software);
  StageOnce(scenario, units, states, software)
      .finish(clock, timer.reductions_after_passes(pieces), !timer.gathers_ahead(), at_an_end);
}

StageEnds stage_ends(const Scenario& scenario, const Piece& units, const std::vector<const Piece*>& pieces,
                     bool at_an_end, const StateTimes& states, const StepSoftware& software) {
  const StageOnce once(scenario, units, states, software);
  static const ComputeTimes none{};
  const PassTimer timer(scenario, none, states, software);
  const std::vector<ActionTime> reductions = timer.reductions_after_passes(pieces);
  const bool gathers = !timer.gathers_ahead();
  StageEnds ends;
  const DeviceClock clock(software.interference, false);
  DeviceClock begin = clock, from_device = clock, from_host = clock;
  if (timer.gathers_ahead()) begin.skip({}, {}, once.launches_of_gathers());
  once.begin(begin);
  ends.host_begin = begin.host() + software.before_first_pass;
  ends.begin = std::max(begin.free(kComputeStream), ends.host_begin);
  constexpr Seconds kLongAgo{-1e6};
  from_device.skip({}, {}, kLongAgo);
  once.finish(from_device, reductions, gathers, at_an_end);
  ends.finish = from_device.end();
  once.finish(from_host, reductions, gathers, at_an_end);
  ends.finish_ahead = from_host.end();
  ends.finish_launches = from_host.host();
  return ends;
}

}  // namespace sim
