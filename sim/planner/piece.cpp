#include "sim/planner/piece.h"

#include <algorithm>
#include <utility>

#include "sim/plan/layer_division.h"
#include "sim/plan/recompute.h"

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

ActionTime UnitTimes::*unit_of(const Piece::Run& r) {
  return r.experts ? &UnitTimes::expert_layer : &UnitTimes::layer;
}

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

bool PassTimer::reduces_beside() const {
  const DataParallelProfile& profile = scenario_.implementation.data_parallel;
  return strategy_.zero_stage >= 2 ||
         (strategy_.zero_stage == 1 ? profile.overlaps_sharded_reduction : profile.overlaps_reduction);
}

std::vector<UnitStep> PassTimer::forward(const Piece& piece, const UnitTimes* gather) const {
  std::vector<UnitStep> steps;
  const auto add = [&](const ActionTime& compute, ActionTime UnitTimes::*unit, std::int32_t count) {
    steps.push_back({compute, gather ? gathers(*gather, unit) : ActionTime{}, {}, count});
  };
  if (piece.first) add(compute_.embedding, &UnitTimes::embedding, 1);
  for (const Piece::Run& r : piece.runs) add(compute_.layers[r.kind].forward, unit_of(r), r.layers);
  if (piece.last) add(compute_.head, &UnitTimes::head, 1);
  return begun(std::move(steps));
}

std::vector<UnitStep> PassTimer::backward(const Piece& piece, ActionTime LayerTimes::*pass,
                                          Reduce reduce) const {
  const bool of_layers = pass == &LayerTimes::backward;
  std::vector<UnitStep> steps;
  const auto zeroed = [&](const ActionTime& compute, ActionTime UnitTimes::*unit) {
    return strategy_.zero_stage >= 2 ? in_turn(states_.zero_whole.*unit, compute) : compute;
  };
  const auto gather = [&](ActionTime UnitTimes::*unit) {
    return strategy_.zero_stage == 3 ? gathers(states_.gather_for_backward, unit) : ActionTime{};
  };
  const auto reduces = [&](ActionTime UnitTimes::*unit) {
    return reduce == Reduce::none   ? ActionTime{}
           : reduce == Reduce::each ? states_.reduce.*unit
                                    : states_.reduce_last.*unit;
  };
  if (piece.last)
    steps.push_back({zeroed(compute_.head_backward, &UnitTimes::head), gather(&UnitTimes::head),
                     reduces(&UnitTimes::head), 1});
  const std::int32_t interval = recompute_interval(strategy_, piece.layers());
  std::int32_t above = piece.layers();  // layers whose pass is still to come
  for (std::size_t i = piece.runs.size(); i-- > 0;) {
    const Piece::Run& r = piece.runs[i];
    const LayerTimes& layer = compute_.layers[r.kind];
    const ActionTime own = zeroed(layer.*pass, unit_of(r));
    const auto add = [&](const UnitStep& step, std::int32_t backward) {
      UnitStep pass_step = step;
      pass_step.count = backward;
      if (of_layers)
        add_layers(steps, pass_step, r, reduce, reduces(unit_of(r)));
      else
        steps.push_back(pass_step);
    };
    if (interval == 1) {
      add({in_turn(layer.recompute_last, own), gather(unit_of(r)), {}, 1}, r.layers);
      above -= r.layers;
      continue;
    }
    // A group's layers run forward again, then backward with the parameters that are there.
    const std::int32_t begin = above - r.layers;
    while (above > begin) {
      const std::int32_t n = above - std::max(begin, (above - 1) / interval * interval);
      if (n > 1) steps.push_back({layer.recompute, gather(unit_of(r)), {}, n - 1});
      steps.push_back({layer.recompute_last, gather(unit_of(r)), {}, 1});
      add({own, {}, {}, 1}, n);
      above -= n;
    }
  }
  if (piece.first)
    steps.push_back(
        {zeroed(compute_.embedding_backward, &UnitTimes::embedding), {}, reduces(&UnitTimes::embedding), 1});
  return begun(std::move(steps));
}

std::vector<UnitStep> PassTimer::weights(const Piece& piece, Reduce reduce) const {
  std::vector<UnitStep> steps;
  for (std::size_t i = piece.runs.size(); i-- > 0;) {
    const Piece::Run& r = piece.runs[i];
    const ActionTime message = reduce == Reduce::none   ? ActionTime{}
                               : reduce == Reduce::each ? states_.reduce.*unit_of(r)
                                                        : states_.reduce_last.*unit_of(r);
    add_layers(steps, {compute_.layers[r.kind].weight, {}, {}, r.layers}, r, reduce, message);
  }
  return begun(std::move(steps));
}

ActionTime PassTimer::gathers(const UnitTimes& of, ActionTime UnitTimes::*unit) const {
  ActionTime t = of.*unit;
  t.work = software_.gather;
  return t;
}
std::vector<UnitStep> PassTimer::begun(std::vector<UnitStep> steps) const {
  if (!steps.empty()) {
    if (steps.front().count > 1) {
      UnitStep first = steps.front();
      --steps.front().count;
      first.count = 1;
      steps.insert(steps.begin(), first);
    }
    steps.front().compute.work = software_.pass;
  }
  return steps;
}
// Layers whose gradients go one by one, or as many in a message as a bucket holds.
void PassTimer::add_layers(std::vector<UnitStep>& steps, UnitStep layers, const Piece::Run& r, Reduce reduce,
                           const ActionTime& message) const {
  const std::int32_t bucket = r.experts ? states_.bucket_expert_layers : states_.bucket_layers;
  if (reduce == Reduce::none || bucket <= 1) {
    layers.reduce = message;
    steps.push_back(layers);
    return;
  }
  const auto& messages = r.experts ? states_.reduce_expert_layers : states_.reduce_layers;
  // What replicas sum goes layer by layer.
  const ActionTime& one = r.experts ? states_.reduce.expert_layer : states_.reduce.layer;
  for (std::int32_t done = 0; done < layers.count;) {
    const std::int32_t n = std::min(bucket, layers.count - done);
    UnitStep some = layers;
    some.count = n - 1;
    if (some.count > 0) steps.push_back(some);
    some.count = 1;
    const auto found = messages.find(n);
    some.reduce = found != messages.end() ? found->second : repeated(one, n);
    if (reduce == Reduce::last) {
      ActionTime others = repeated(message, n);
      others.duration = others.duration - one.duration * n;
      others.host.launches = others.host.launches - one.host.launches * n;
      some.reduce = in_turn(some.reduce, others);
    }
    steps.push_back(some);
    done += n;
  }
}

PassTime PassTimer::exchanging(std::vector<UnitStep> steps, std::int32_t prefetch,
                               const PassTime& plain) const {
  if (steps.empty()) return {};
  PassTime pass = plain;
  steps.front().compute.work = {};
  constexpr Seconds kLongAgo{-1e6};
  DeviceClock clock(software_.interference, false);
  clock.skip({}, kLongAgo, kLongAgo);
  run_pass(clock, steps, prefetch);
  pass.duration = clock.free(kComputeStream);
  pass.collectives_after_compute = std::max(kNever, clock.free(kCollectiveStream));
  bool gathers = false;
  for (const UnitStep& s : steps) {
    gathers = gathers || is_there(s.gather);
    pass.collectives += (s.gather.duration + s.reduce.duration) * s.count;
    pass.host.launches += (s.gather.host.launches + s.gather.work.before + s.reduce.host.launches) * s.count;
  }
  // The first gather waits for earlier collectives as it does for earlier compute.
  if (gathers) pass.compute_after_collectives = pass.duration;
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

ChunkPasses PassTimer::with_exchanges(const Piece& piece, const ChunkPasses& plain) const {
  const BackwardParts parts = backward_parts(strategy_.schedule);
  const bool each = strategy_.zero_stage >= 2;
  ChunkPasses passes = plain;
  if (strategy_.zero_stage == 3)
    passes.forward = passes.first_forward =
        exchanging(forward(piece, &states_.gather_for_forward), strategy_.prefetch, plain.forward);
  if (gathers_ahead()) {
    const PassTime first = exchanging(forward(piece, &states_.gather_updated), kFarAhead, plain.forward);
    passes.first_forward.compute_after_collectives = first.compute_after_collectives;
    passes.first_forward.collectives = first.collectives;
  }
  if (!reduces_beside()) return passes;
  // The last micro-batch's passes differ where replicas sum what others have reduced.
  const auto differs = [&](ActionTime UnitTimes::*unit) {
    return (states_.reduce.*unit).duration != (states_.reduce_last.*unit).duration;
  };
  const bool last_differs = !each || differs(&UnitTimes::layer) || differs(&UnitTimes::expert_layer) ||
                            differs(&UnitTimes::head) || differs(&UnitTimes::embedding);
  const auto backward_passes = [&](PassTime ChunkPasses::*usual, PassTime ChunkPasses::*last, auto steps) {
    const auto with = [&](Reduce reduce) {
      return exchanging(steps(reduce), strategy_.prefetch, plain.*usual);
    };
    if (each) passes.*usual = passes.*last = with(Reduce::each);
    if (last_differs) passes.*last = with(Reduce::last);
  };
  if (parts != BackwardParts::all_split)
    backward_passes(&ChunkPasses::backward, &ChunkPasses::last_backward,
                    [&](Reduce r) { return backward(piece, &LayerTimes::backward, r); });
  if (parts != BackwardParts::whole) {
    backward_passes(&ChunkPasses::input, &ChunkPasses::last_input,
                    [&](Reduce r) { return backward(piece, &LayerTimes::input, r); });
    backward_passes(&ChunkPasses::weight, &ChunkPasses::last_weight,
                    [&](Reduce r) { return weights(piece, r); });
  }
  return passes;
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
  }
  for (std::size_t i = piece.runs.size(); of_layers && i-- > 0;) {
    const Piece::Run& r = piece.runs[i];
    const std::int32_t bucket = r.experts ? states_.bucket_expert_layers : states_.bucket_layers;
    if (bucket <= 1) {
      add(reduce.*unit_of(r), r.layers);
      continue;
    }
    const auto& messages = r.experts ? states_.reduce_expert_layers : states_.reduce_layers;
    const auto message = [&](std::int32_t n) {
      const auto found = messages.find(n);
      return found != messages.end() ? found->second : repeated(states_.reduce.*unit_of(r), n);
    };
    const std::int32_t rest = r.layers % bucket;
    if (r.layers >= bucket) add(message(bucket), r.layers / bucket);
    if (rest > 0) add(message(rest), 1);
    // What replicas sum goes layer by layer.
    sum.reductions += ((reduce.*unit_of(r)).duration - (states_.reduce.*unit_of(r)).duration) * r.layers;
  }
  if (of_edges && piece.first) add(reduce.embedding, 1);
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
  if (!reduces_beside()) return passes;
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
    ActionTime first{};
    if (scenario_.implementation.memory.weight_gradient != WeightGradient::fresh)
      first = compute_of(each_unit(states_.zero));
    first.work = software_.once;
    first.work.before += scenario_.implementation.host.step;
    clock.run(kComputeStream, first);
  }

  void finish(DeviceClock& clock, bool reduces, bool gathers, bool at_an_end) const {
    if (reduces) {
      const Seconds ready = clock.free(kComputeStream);
      for (const UnitStep& s : each_unit(states_.reduce_last))
        clock.run(kCollectiveStream, repeated(s.compute, s.count), ready);
    }
    ActionTime norm = states_.zero_norm;
    norm.work = software_.once;
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
      if (is_there(compute.*unit) || is_there(reduce)) steps.push_back({compute.*unit, {}, reduce, count});
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

StageEnds stage_ends(const Scenario& scenario, const Piece& units, bool at_an_end, const StateTimes& states,
                     const StepSoftware& software) {
  const StageOnce once(scenario, units, states, software);
  static const ComputeTimes none{};
  const PassTimer timer(scenario, none, states, software);
  const bool reduces = !timer.reduces_beside(), gathers = !timer.gathers_ahead();
  StageEnds ends;
  const DeviceClock clock(software.interference, false);
  DeviceClock begin = clock, from_device = clock, from_host = clock;
  once.begin(begin);
  ends.begin = begin.free(kComputeStream);
  ends.host_begin = begin.host();
  constexpr Seconds kLongAgo{-1e6};
  from_device.skip({}, {}, kLongAgo);
  once.finish(from_device, reduces, gathers, at_an_end);
  ends.finish = from_device.end();
  once.finish(from_host, reduces, gathers, at_an_end);
  ends.finish_ahead = from_host.end();
  ends.finish_launches = from_host.host();
  return ends;
}

}  // namespace sim
