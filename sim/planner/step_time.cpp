#include "sim/planner/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/plan/layer_division.h"
#include "sim/plan/recompute.h"

namespace sim {

std::int32_t Piece::layers() const {
  std::int32_t n = 0;
  for (const Run& r : runs) n += r.layers;
  return n;
}

Piece piece_of(const Scenario& s, const std::vector<LayerKind>& kinds, std::int32_t piece) {
  Piece p{.first = piece == 0, .last = piece == pieces_of(s.strategy) - 1, .runs = {}};
  if (placement_of(s.strategy.schedule) == Placement::two_directions)
    p.last = piece == s.strategy.pipeline_parallel - 1;
  const LayerRange range = layers_of(s, piece);
  for (std::int32_t l = range.first; l < range.last; ++l) {
    const LayerKind kind = kind_of_layer(s.model, l);
    const auto at = static_cast<std::size_t>(std::find(kinds.begin(), kinds.end(), kind) - kinds.begin());
    if (p.runs.empty() || p.runs.back().kind != at) p.runs.push_back({at, kind.experts, 0});
    ++p.runs.back().layers;
  }
  return p;
}

StepShape step_shape(const Scenario& s, const std::vector<LayerKind>& kinds) {
  const Strategy& t = s.strategy;
  const std::int64_t micro_batches =
      s.workload.global_batch_size / t.data_parallel / s.workload.micro_batch_size;
  StepShape shape{.scenario = &s, .micro_batches = static_cast<std::int32_t>(micro_batches), .pieces = {}};
  const Schedule places{
      .stages = t.pipeline_parallel,
      .chunks = placement_of(t.schedule) == Placement::two_directions ? 2 : t.virtual_pipeline,
      .placement = placement_of(t.schedule)};
  for (std::int32_t stage = 0; stage < places.stages; ++stage) {
    auto& chunks = shape.pieces.emplace_back();
    for (std::int32_t chunk = 0; chunk < places.chunks; ++chunk)
      chunks.push_back(piece_of(s, kinds, places.piece(stage, chunk)));
  }
  return shape;
}

namespace {

enum class Reduce { none, each, last };

// Writes the steps of passes.
class PassWriter {
 public:
  PassWriter(const StepShape& shape, const ComputeTimes& compute, const StateTimes& states,
             const StepSoftware& software)
      : strategy_(shape.scenario->strategy), compute_(compute), states_(states), software_(software) {}

  std::vector<UnitStep> forward(const Piece& piece, const UnitTimes* gather) const {
    std::vector<UnitStep> steps;
    const auto add = [&](const ActionTime& compute, ActionTime UnitTimes::*unit, std::int32_t count) {
      steps.push_back({compute, gather ? gathers(*gather, unit) : ActionTime{}, {}, count});
    };
    if (piece.first) add(compute_.embedding, &UnitTimes::embedding, 1);
    for (const Piece::Run& r : piece.runs) add(compute_.layers[r.kind].forward, unit_of(r), r.layers);
    if (piece.last) add(compute_.head, &UnitTimes::head, 1);
    return begun(std::move(steps));
  }

  std::vector<UnitStep> backward(const Piece& piece, ActionTime LayerTimes::*pass, Reduce reduce) const {
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
      steps.push_back({zeroed(compute_.embedding_backward, &UnitTimes::embedding),
                       {},
                       reduces(&UnitTimes::embedding),
                       1});
    return begun(std::move(steps));
  }

  std::vector<UnitStep> weights(const Piece& piece, Reduce reduce) const {
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

  static ActionTime UnitTimes::*unit_of(const Piece::Run& r) {
    return r.experts ? &UnitTimes::expert_layer : &UnitTimes::layer;
  }

 private:
  ActionTime gathers(const UnitTimes& of, ActionTime UnitTimes::*unit) const {
    ActionTime t = of.*unit;
    t.work = software_.gather;
    return t;
  }
  std::vector<UnitStep> begun(std::vector<UnitStep> steps) const {
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
  void add_layers(std::vector<UnitStep>& steps, UnitStep layers, const Piece::Run& r, Reduce reduce,
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

  const Strategy& strategy_;
  const ComputeTimes& compute_;
  const StateTimes& states_;
  const StepSoftware& software_;
};

// A step of one stage, but for what its pipeline makes of its passes.
class StageStep {
 public:
  StageStep(const StepShape& shape, const std::vector<Piece>& pieces, const StateTimes& states,
            const StepSoftware& software)
      : scenario_(*shape.scenario),
        strategy_(scenario_.strategy),
        profile_(scenario_.implementation.data_parallel),
        pieces_(pieces),
        states_(states),
        software_(software) {}

  bool gathers_ahead() const {
    return profile_.overlaps_gather && (strategy_.zero_stage == 1 || strategy_.zero_stage == 2);
  }
  bool reduces_beside() const {
    return strategy_.zero_stage >= 2 ||
           (strategy_.zero_stage == 1 ? profile_.overlaps_sharded_reduction : profile_.overlaps_reduction);
  }

  std::vector<UnitStep> each_unit(const UnitTimes& compute, const UnitTimes* exchange = nullptr) const {
    std::vector<UnitStep> steps;
    const auto add = [&](ActionTime UnitTimes::*unit, std::int32_t count) {
      const ActionTime reduce = exchange ? exchange->*unit : ActionTime{};
      if (is_there(compute.*unit) || is_there(reduce)) steps.push_back({compute.*unit, {}, reduce, count});
    };
    for (const Piece& p : pieces_) {
      if (p.first) add(&UnitTimes::embedding, 1);
      for (const Piece::Run& r : p.runs) add(PassWriter::unit_of(r), r.layers);
      if (p.last) add(&UnitTimes::head, 1);
    }
    return steps;
  }

  void begin(DeviceClock& clock) const {
    ActionTime first{};
    if (scenario_.implementation.memory.weight_gradient != WeightGradient::fresh)
      first = compute_of(each_unit(states_.zero));
    first.work = software_.pass;
    first.work.before += scenario_.implementation.host.step;
    clock.run(kComputeStream, first);
  }

  void reduce_after(DeviceClock& clock) const {
    const Seconds ready = clock.free(kComputeStream);
    for (const UnitStep& s : each_unit(states_.reduce_last))
      clock.run(kCollectiveStream, repeated(s.compute, s.count), ready);
  }

  void optimizer(DeviceClock& clock, bool at_an_end) const {
    ActionTime norm = states_.zero_norm;
    norm.work = software_.pass;
    clock.run(kComputeStream, norm, clock.free(kCollectiveStream));
    ActionTime before = at_an_end ? states_.sum_tied_embedding : ActionTime{};
    before = in_turn(before, compute_of(each_unit(states_.unscale)));
    before = in_turn(before, states_.read_overflow);
    before = in_turn(before, compute_of(each_unit(states_.norm)));
    before = in_turn(before, in_turn(states_.sum_norm, states_.clip));
    clock.run(kComputeStream, before);
    if (strategy_.offload_optimizer) return update_on_host(clock);
    run_pass(clock, each_unit(states_.update, gathers_ahead() ? nullptr : &states_.gather_updated), 0);
  }

 private:
  void update_on_host(DeviceClock& clock) const {
    const Seconds computed = clock.free(kComputeStream);
    const auto unit = [&](ActionTime UnitTimes::*u) {
      const Seconds out = clock.run(kToHostStream, states_.gradients_to_host.*u, computed).end;
      const Seconds updated = clock.run(kHostStream, states_.update.*u, out).end;
      const Seconds in = clock.run(kFromHostStream, states_.parameters_from_host.*u, updated).end;
      if (!gathers_ahead() && is_there(states_.gather_updated.*u))
        clock.run(kCollectiveStream, states_.gather_updated.*u, in);
    };
    for (const Piece& p : pieces_) {
      if (p.first) unit(&UnitTimes::embedding);
      for (const Piece::Run& r : p.runs)
        for (std::int32_t l = 0; l < r.layers; ++l) unit(PassWriter::unit_of(r));
      if (p.last) unit(&UnitTimes::head);
    }
  }

  const Scenario& scenario_;
  const Strategy& strategy_;
  const DataParallelProfile& profile_;
  const std::vector<Piece>& pieces_;
  const StateTimes& states_;
  const StepSoftware& software_;
};

constexpr std::int32_t kFarAhead = 15;  // of gathers that nothing holds back

Seconds in_one_stage(const StepShape& shape, const PassWriter& passes, const StageStep& step,
                     const StateTimes& states, const StepSoftware& software) {
  const Strategy& strategy = shape.scenario->strategy;
  const Piece& piece = shape.pieces.front().front();
  DeviceClock clock(software.interference, false);
  step.begin(clock);
  const UnitTimes* gather = strategy.zero_stage == 3 ? &states.gather_for_forward : nullptr;
  const bool each = strategy.zero_stage >= 2;
  const auto forward = passes.forward(piece, gather);
  const auto backward = passes.backward(piece, &LayerTimes::backward, each ? Reduce::each : Reduce::none);
  const ActionTime forward_alone = compute_of(forward), backward_alone = compute_of(backward);
  const auto micro_batch = [&] {
    if (each) {
      run_pass(clock, forward, strategy.prefetch);
      run_pass(clock, backward, strategy.prefetch);
    } else {
      clock.run(kComputeStream, forward_alone);
      clock.run(kComputeStream, backward_alone);
    }
  };
  const auto state = [&] {
    return std::array<Seconds, 3>{clock.free(kComputeStream), clock.free(kCollectiveStream), clock.host()};
  };
  std::int32_t done = 0;
  if (step.gathers_ahead()) {
    run_pass(clock, passes.forward(piece, &states.gather_updated), kFarAhead);
    if (shape.micro_batches > 1) {
      if (each)
        run_pass(clock, backward, strategy.prefetch);
      else
        clock.run(kComputeStream, backward_alone);
    }
    done = 1;
  }
  const bool last_is_begun = done == shape.micro_batches;
  // All but the last: a few, and then as many of the same as there are left.
  constexpr std::int32_t kSettled = 4;
  const std::int32_t others = shape.micro_batches - 1;
  for (; done < others && done < kSettled; ++done) micro_batch();
  if (done < others) {
    const auto before = state();
    micro_batch();
    ++done;
    const auto after = state();
    const double left = others - done;
    clock.skip((after[0] - before[0]) * left, (after[1] - before[1]) * left, (after[2] - before[2]) * left);
  }
  if (!last_is_begun) {
    if (each)
      run_pass(clock, forward, strategy.prefetch);
    else
      clock.run(kComputeStream, forward_alone);
  }
  run_pass(clock,
           passes.backward(piece, &LayerTimes::backward, step.reduces_beside() ? Reduce::last : Reduce::none),
           strategy.prefetch);
  if (!step.reduces_beside()) step.reduce_after(clock);
  step.optimizer(clock, true);
  return clock.end();
}

// A pass without exchanges, as a whole.
PassTime alone(const std::vector<UnitStep>& steps) {
  const ActionTime t = compute_of(steps);
  return {.duration = t.duration, .host = t.host, .work = t.work};
}

// With them: what it makes of a stage whose compute, or whose collectives, were free long before.
PassTime with_exchanges(std::vector<UnitStep> steps, std::int32_t prefetch, Interference interference) {
  if (steps.empty()) return {};
  PassTime pass;
  pass.work = std::exchange(steps.front().compute.work, {});
  constexpr Seconds kLongAgo{-1e6};
  DeviceClock from_compute(interference, false), from_collectives(interference, false),
      from_host(interference, false);
  from_compute.skip({}, kLongAgo, kLongAgo);
  run_pass(from_compute, steps, prefetch);
  pass.duration = from_compute.free(kComputeStream);
  pass.collectives_after_compute = from_compute.free(kCollectiveStream);
  from_collectives.skip(kLongAgo, {}, kLongAgo);
  run_pass(from_collectives, steps, prefetch);
  pass.compute_after_collectives = from_collectives.free(kComputeStream);
  pass.collectives = from_collectives.free(kCollectiveStream);
  run_pass(from_host, steps, prefetch);
  pass.host = {from_host.host(), from_host.free(kComputeStream)};
  return pass;
}

}  // namespace

Seconds step_time(const StepShape& shape, const ComputeTimes& compute, const StateTimes& states,
                  const TransferTimes& transfers, const StepSoftware& software, PipelineClock& pipeline) {
  const Strategy& strategy = shape.scenario->strategy;
  const PassWriter passes(shape, compute, states, software);
  if (strategy.pipeline_parallel == 1)
    return in_one_stage(shape, passes, StageStep(shape, shape.pieces.front(), states, software), states,
                        software);

  const BackwardParts parts = backward_parts(strategy.schedule);
  const bool each = strategy.zero_stage >= 2;
  const UnitTimes* gather = strategy.zero_stage == 3 ? &states.gather_for_forward : nullptr;
  const Reduce reduce = each ? Reduce::each : Reduce::none;
  const std::size_t stages = shape.pieces.size();
  const auto whole = [&](const std::vector<UnitStep>& steps, bool exchanges) {
    return exchanges ? with_exchanges(steps, strategy.prefetch, software.interference) : alone(steps);
  };
  std::vector<StageTimes> times(stages);
  for (std::size_t i = 0; i < stages; ++i) {
    const StageStep step(shape, shape.pieces[i], states, software);
    DeviceClock clock(software.interference, false);
    step.begin(clock);
    times[i].begin = clock.free(kComputeStream);
    times[i].host_begin = clock.host();
    const Reduce last = step.reduces_beside() ? Reduce::last : Reduce::none;
    for (const Piece& piece : shape.pieces[i]) {
      ChunkPasses chunk;
      chunk.forward = whole(passes.forward(piece, gather), gather != nullptr);
      chunk.first_forward = chunk.forward;
      if (step.gathers_ahead()) {
        const PassTime first =
            with_exchanges(passes.forward(piece, &states.gather_updated), kFarAhead, software.interference);
        chunk.first_forward.compute_after_collectives = first.compute_after_collectives;
        chunk.first_forward.collectives = first.collectives;
      }
      if (parts != BackwardParts::all_split) {
        chunk.backward = whole(passes.backward(piece, &LayerTimes::backward, reduce), each);
        chunk.last_backward =
            whole(passes.backward(piece, &LayerTimes::backward, last), last != Reduce::none);
      }
      if (parts != BackwardParts::whole) {
        chunk.input = whole(passes.backward(piece, &LayerTimes::input, reduce), each);
        chunk.last_input = whole(passes.backward(piece, &LayerTimes::input, last), last != Reduce::none);
        chunk.weight = whole(passes.weights(piece, reduce), each);
        chunk.last_weight = whole(passes.weights(piece, last), last != Reduce::none);
      }
      times[i].chunks.push_back(chunk);
    }
  }
  const std::vector<StageEnd> ends =
      pipeline.run(strategy.schedule, strategy.pipeline_parallel, strategy.virtual_pipeline,
                   shape.micro_batches, times, transfers);
  Seconds latest;
  for (std::size_t i = 0; i < stages; ++i) {
    const StageStep step(shape, shape.pieces[i], states, software);
    DeviceClock clock(software.interference, transfers.in_order);
    clock.skip(ends[i].compute, ends[i].collectives, ends[i].host);
    if (!step.reduces_beside()) step.reduce_after(clock);
    step.optimizer(clock, i == 0 || i + 1 == stages);
    latest = std::max({latest, clock.end(), ends[i].sends});
  }
  return latest;
}

}  // namespace sim
