#include "sim/planner/pass_timer.h"

#include <algorithm>
#include <utility>

#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"

namespace sim {

PassTimer::PassTimer(const Scenario& scenario, const ComputeTimes& compute, const StateTimes& states,
                     const StepSoftware& software)
    : scenario_(scenario),
      strategy_(scenario.strategy),
      compute_(compute),
      states_(states),
      software_(software),
      units_(scenario, compute, states, software.gather) {}

bool PassTimer::gathers_ahead() const {
  return scenario_.implementation.data_parallel.overlaps_gather &&
         (strategy_.zero_stage == 1 || strategy_.zero_stage == 2);
}

bool reduces_beside(const Scenario& s) {
  const DataParallelProfile& profile = s.implementation.data_parallel;
  const int zero = s.strategy.zero_stage;
  return zero >= 2 || (zero == 1 ? profile.overlaps_sharded_reduction : profile.overlaps_reduction);
}

std::vector<ActionTime> PassTimer::reductions_after_passes(const std::vector<const Piece*>& pieces) const {
  std::vector<ActionTime> messages;
  const auto add = [&](const ActionTime& message, std::int32_t count) {
    if (is_there(message)) messages.push_back(repeated(message, count));
  };
  for (const Piece* piece : pieces) {
    if (reduces_beside(scenario_)) break;
    for (const UnitStep& s : units_.reductions(*piece)) add(s.reduce, s.count);
  }
  for (const Piece* piece : pieces)
    if (piece->first && units_.defers_embedding()) add(states_.reduce_last.embedding, 1);
  return messages;
}

// What earlier collectives, that this pass does not wait for, make of it.
void PassTimer::add_slowdown(PassTime& pass, Seconds compute) const {
  const double slowdown = software_.interference.compute;
  pass.slower = 1 - 1 / slowdown;
  pass.most_slower = std::max(Seconds{}, compute * slowdown - pass.duration);
}

void PassTimer::exchanging(std::span<const DeviceStep> steps, std::int32_t prefetch, const PassTime& plain,
                           PassTime& pass) const {
  pass = plain;
  if (steps.empty()) return;
  const DevicePass ended = run_pass(steps, prefetch, software_.interference);
  pass.duration = ended.compute;
  pass.collectives_after_compute = ended.collectives;
  bool gathers = false;
  Seconds compute;
  for (const DeviceStep& s : steps) {
    gathers = gathers || is_there(s.gather);
    compute += (s.before + s.compute) * s.count;
    pass.collectives += (s.gather.duration + s.reduce.duration) * s.count;
    pass.host.launches += (s.gather.launches + s.before_gather + s.reduce.launches) * s.count;
  }
  // The first gather waits for earlier collectives as it does for earlier compute.
  if (gathers)
    pass.compute_after_collectives = pass.duration;
  else
    add_slowdown(pass, compute);
  if (plain.host.launches.value > 0) pass.host.ahead += pass.duration - plain.duration;
}

namespace {

constexpr std::int32_t kFarAhead = 15;  // of gathers that nothing holds back

}  // namespace

void PassTimer::begin_with_work(std::vector<UnitStep>& steps) const {
  if (steps.empty()) return;
  if (steps.front().count > 1) {
    UnitStep first = steps.front();
    --steps.front().count;
    first.count = 1;
    steps.insert(steps.begin(), first);
  }
  first_of(steps.front()).work = software_.pass;
}

// A pass without exchanges, as a whole.
PassTime PassTimer::alone(std::vector<UnitStep>& steps) const {
  begin_with_work(steps);
  const ActionTime t = compute_of(steps);
  return {.duration = t.duration, .host = t.host, .work = t.work};
}

ChunkPasses PassTimer::plain(const Piece& piece) const {
  const BackwardParts parts = backward_parts(strategy_.schedule);
  ChunkPasses passes;
  std::vector<UnitStep> steps;
  units_.forward(piece, nullptr, steps);
  passes.forward = passes.first_forward = alone(steps);
  if (parts != BackwardParts::all_split) {
    units_.backward(piece, &LayerTimes::backward, Reduce::none, steps);
    passes.backward = passes.last_backward = alone(steps);
  }
  if (parts != BackwardParts::whole) {
    units_.backward(piece, &LayerTimes::input, Reduce::none, steps);
    passes.input = passes.last_input = alone(steps);
    units_.weights(piece, Reduce::none, steps);
    passes.weight = passes.last_weight = alone(steps);
  }
  return passes;
}

ChunkSteps PassTimer::steps(const Piece& piece) const {
  const BackwardParts parts = backward_parts(strategy_.schedule);
  ChunkSteps chunk;
  chunk.prefetch = strategy_.prefetch;
  const auto set = [&](PassTime ChunkPasses::*pass, auto fill) {
    std::vector<UnitStep>& steps = chunk.of(pass);
    fill(steps);
    begin_with_work(steps);
  };
  const UnitTimes* gather = strategy_.zero_stage == 3 ? &states_.gather_for_forward : nullptr;
  for (const auto pass : {&ChunkPasses::forward, &ChunkPasses::first_forward})
    set(pass, [&](auto& steps) { units_.forward(piece, gather, steps); });
  const auto backward = [&](PassTime ChunkPasses::*pass, ActionTime LayerTimes::*of_layer, Reduce reduce) {
    set(pass, [&](auto& steps) { units_.backward(piece, of_layer, reduce, steps); });
  };
  const auto weights = [&](PassTime ChunkPasses::*pass, Reduce reduce) {
    set(pass, [&](auto& steps) { units_.weights(piece, reduce, steps); });
  };
  if (parts != BackwardParts::all_split) {
    backward(&ChunkPasses::backward, &LayerTimes::backward, reduces_each());
    backward(&ChunkPasses::last_backward, &LayerTimes::backward, reduces_last());
  }
  if (parts != BackwardParts::whole) {
    backward(&ChunkPasses::input, &LayerTimes::input, reduces_each());
    backward(&ChunkPasses::last_input, &LayerTimes::input, reduces_last());
    weights(&ChunkPasses::weight, reduces_each());
    weights(&ChunkPasses::last_weight, reduces_last());
  }
  return chunk;
}

Reduce PassTimer::reduces_each() const {
  return strategy_.zero_stage >= 2 ? Reduce::each : Reduce::none;
}
Reduce PassTimer::reduces_last() const {
  return reduces_beside(scenario_) ? Reduce::last : Reduce::none;
}

void PassTimer::gather_ahead(const Piece& piece, ChunkSteps& chunk, DeviceClock& clock) const {
  std::vector<UnitStep>& steps = chunk.of(&ChunkPasses::first_forward);
  std::vector<UnitStep> gathers;
  units_.forward(piece, &states_.gather_updated, gathers);
  begin_with_work(gathers);  // as the pass's own steps
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

bool PassTimer::last_differs() const {
  const UnitTimes& last = states_.only_last;
  return strategy_.zero_stage < 2 || is_there(last.embedding) || is_there(last.layer) ||
         is_there(last.expert_layer) || is_there(last.head);
}

template <class Set>
void PassTimer::reducing(const PassTime& plain, bool has_gradients, Set set, PassTime& usual,
                         PassTime& last) const {
  if (reduces_each() != Reduce::none) {
    set(usual, reduces_each());
  } else {
    usual = plain;
    add_slowdown(usual, plain.duration);
  }
  if (has_gradients && reduces_last() != Reduce::none && last_differs())
    set(last, Reduce::last);
  else
    last = usual;
}

void PassTimer::unbucketed(const Piece& piece, const ChunkPasses& plain, Unbucketed& into) const {
  thread_local std::vector<DeviceStep> steps;
  if (strategy_.zero_stage == 3) {
    units_.forward(piece, &states_.gather_for_forward, steps);
    exchanging(steps, strategy_.prefetch, plain.forward, into.forward);
  } else {
    into.forward = plain.forward;
    add_slowdown(into.forward, plain.forward.duration);
  }
  into.first_forward = into.forward;
  if (gathers_ahead()) {
    units_.forward(piece, &states_.gather_updated, steps);
    PassTime first;
    exchanging(steps, kFarAhead, plain.forward, first);
    into.first_forward.compute_after_collectives = first.compute_after_collectives;
    into.first_forward.collectives = first.collectives;
  }
  if (plain.input.duration.value == 0) return;
  const auto set = [&](PassTime& pass, Reduce reduce) {
    units_.backward(piece, &LayerTimes::input, reduce, steps);
    exchanging(steps, strategy_.prefetch, plain.input, pass);
  };
  reducing(plain.input, piece.first || piece.last, set, into.input.usual, into.input.last);
}

PassTimer::Bucketed PassTimer::bucketed(const Piece& piece, const ChunkPasses& plain,
                                        const Bucketed* same_layers,
                                        std::pmr::memory_resource* memory) const {
  thread_local std::vector<DeviceStep> steps;
  Bucketed passes{{}, std::pmr::vector<DeviceStep>(memory), std::pmr::vector<DeviceStep>(memory)};
  const auto set = [&](PassTime& pass, Reduce reduce) {
    units_.weights(piece, reduce, steps);
    exchanging(steps, 0, plain.weight, pass);
  };
  if (same_layers)
    passes.weight = same_layers->weight;
  else if (plain.weight.duration.value > 0)
    reducing(plain.weight, true, set, passes.weight.usual, passes.weight.last);
  if (plain.backward.duration.value == 0) return passes;
  const auto fill = [&](Reduce reduce, std::pmr::vector<DeviceStep>& of_pass) {
    units_.backward(piece, &LayerTimes::backward, reduce, steps);
    of_pass.assign(steps.begin(), steps.end());
  };
  if (reduces_each() != Reduce::none) fill(reduces_each(), passes.backward);
  if (last_differs()) fill(Reduce::last, passes.last_backward);
  return passes;
}

void PassTimer::with_exchanges(const Piece& piece, const ChunkPasses& plain, const Unbucketed& unbucketed,
                               const Bucketed& bucketed, ChunkPasses& into) const {
  into.forward = unbucketed.forward;
  into.first_forward = unbucketed.first_forward;
  into.input = unbucketed.input.usual;
  into.last_input = unbucketed.input.last;
  into.weight = bucketed.weight.usual;
  into.last_weight = bucketed.weight.last;
  into.begin_gradients = begin_gradients(piece);
  const auto set = [&](PassTime& pass, Reduce reduce) {
    exchanging(reduce == Reduce::last ? bucketed.last_backward : bucketed.backward, strategy_.prefetch,
               plain.backward, pass);
  };
  reducing(plain.backward, true, set, into.backward, into.last_backward);
}

bool PassTimer::reductions_hide(const ChunkPasses& passes) {
  // What is still reduced when the next pass begins, whose first gather comes after it.
  constexpr double kNegligible = 0.005;
  const bool whole = passes.weight.duration.value == 0;
  const PassTime& last = whole ? passes.last_backward : passes.last_weight;
  return last.collectives_after_compute - last.duration <=
         (passes.forward.duration + passes.backward.duration + passes.input.duration +
          passes.weight.duration) *
             kNegligible;
}

bool PassTimer::gathers_hide(const Piece& piece) const {
  if (strategy_.prefetch < 1) return false;
  const double window = std::clamp(piece.units() - 1, 1, strategy_.prefetch);
  const UnitTimes &forward = states_.gather_for_forward, &backward = states_.gather_for_backward;
  const bool splits = backward_parts(strategy_.schedule) != BackwardParts::whole;
  for (const Piece::Run& r : piece.runs) {
    const LayerTimes& layer = compute_.layers[r.kind];
    const UnitTime unit = unit_of(r);
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
  const auto add = [&](const MessageTime& message, std::int32_t n) {
    sum.reductions += message.duration * n;
    sum.launches += message.launches * n;
    if (n > 0) sum.last_reduction = message.duration;
  };
  if (of_edges && piece.last) {
    add(message_of(reduce.head), 1);
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
      add(message_of(reduce.*unit_of(r)), r.layers);
      continue;
    }
    const auto& messages = r.experts ? states_.reduce_expert_layers : states_.reduce_layers;
    const auto message = [&](std::int32_t n) {
      const auto found = messages.find(n);
      const MessageTime layers = found != messages.end()
                                     ? message_of(found->second)
                                     : repeated(message_of(states_.reduce.*unit_of(r)), n);
      return last ? in_turn(layers, repeated(message_of(states_.only_last.*unit_of(r)), n)) : layers;
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
  if (of_edges && piece.first && !units_.defers_embedding()) {
    // The layers' last message goes just before the embedding's.
    const Seconds before = sum.last_reduction - compute_.embedding_backward.duration;
    add(message_of(reduce.embedding), 1);
    sum.last_reduction += std::max(Seconds{}, before);
  }
}

void PassTimer::hidden(const PassTime& plain, const Exchanged& sum, Seconds more_compute,
                       PassTime& pass) const {
  pass = plain;
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
}

void PassTimer::with_hidden_exchanges(const Piece& piece, const ChunkPasses& plain,
                                      ChunkPasses& passes) const {
  const BackwardParts parts = backward_parts(strategy_.schedule);
  const int zero = strategy_.zero_stage;
  passes = plain;
  passes.begin_gradients = begin_gradients(piece);
  if (zero == 3 || gathers_ahead()) {
    Exchanged sum{};
    add_gathers(piece, zero == 3 ? states_.gather_for_forward : states_.gather_updated, true, sum);
    if (zero == 3) {
      hidden(plain.forward, sum, {}, passes.forward);
      passes.first_forward = passes.forward;
    } else {
      // Gathered from the beginning of the step on, beside each other.
      passes.first_forward.compute_after_collectives =
          std::max(sum.first_gather + plain.forward.duration, sum.gathers);
      passes.first_forward.collectives = sum.gathers;
    }
  }
  if (!reduces_beside(scenario_)) return;
  Seconds zeroed;
  if (zero >= 2) {
    if (piece.first) zeroed += states_.zero_whole.embedding.duration;
    for (const Piece::Run& r : piece.runs) zeroed += (states_.zero_whole.*unit_of(r)).duration * r.layers;
    if (piece.last) zeroed += states_.zero_whole.head.duration;
  }
  const bool same = zero >= 2 && !last_differs();
  const auto set = [&](PassTime ChunkPasses::*pass, bool of_edges, bool of_layers, bool last) {
    Exchanged sum{};
    if (zero == 3 && of_edges) add_gathers(piece, states_.gather_for_backward, false, sum);
    add_reductions(piece, of_edges, of_layers, last, sum);
    hidden(plain.*pass, sum, of_edges ? zeroed : Seconds{}, passes.*pass);
  };
  const auto set_both = [&](PassTime ChunkPasses::*usual, PassTime ChunkPasses::*last, bool of_edges,
                            bool of_layers) {
    set(last, of_edges, of_layers, true);
    if (same)
      passes.*usual = passes.*last;
    else if (zero >= 2)
      set(usual, of_edges, of_layers, false);
  };
  if (parts != BackwardParts::all_split)
    set_both(&ChunkPasses::backward, &ChunkPasses::last_backward, true, true);
  if (parts != BackwardParts::whole) {
    set_both(&ChunkPasses::input, &ChunkPasses::last_input, true, false);
    set_both(&ChunkPasses::weight, &ChunkPasses::last_weight, false, true);
  }
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
    first.work = software_.pass;
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
    norm.work = software_.pass;
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
