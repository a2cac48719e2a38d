#include "sim/planner/pass_timer.h"

#include <algorithm>
#include <utility>

#include "sim/cost/software.h"
#include "sim/planner/run_units.h"
#include "sim/planner/step_states.h"

namespace sim {
namespace {

// The message of gradients of `units` units. For the last micro-batch, the sums of each unit over replicas
// and over both directions of a pipeline follow.
ActionTime message_of(BlockTimes& states, Unit unit, std::int32_t units, bool last) {
  ActionTime message = states.message(unit, units);
  if (!last) return message;
  const StepBlocks& blocks = states.blocks();
  for (const UnitBlocks* sums : {&blocks.reduce_replicas, &blocks.reduce_directions})
    if ((*sums)[unit] >= 0)
      message = in_turn(message, repeated(states.of((*sums)[unit], Phase::backward), units));
  return message;
}

}  // namespace

PassTimer::PassTimer(const Scenario& scenario, const ComputeTimes& compute, const StepStates* states,
                     const StepSoftware& software, bool single)
    : scenario_(scenario),
      compute_(compute),
      states_(states),
      software_(software),
      single_(single),
      writes_(products_write_gradients(scenario)) {
  if (!states) return;
  const StepBlocks& blocks = states->unbucketed.blocks.blocks();
  last_differs_ = std::ranges::any_of(kAll<Unit>, [&](Unit unit) {
    return blocks.reduce_replicas[unit] >= 0 || blocks.reduce_directions[unit] >= 0;
  });
}

PassKind PassTimer::normal(PassKind kind) const {
  const bool ends_matter = reduces_beside(scenario_) && (scenario_.strategy.zero_stage < 2 || last_differs_);
  const bool has_work = software_.pass.waits || software_.pass.before.value > 0;
  kind.begins_step &= software_.before_first_pass.value > 0;
  kind.reads_ahead &= gathers_ahead(scenario_);
  kind.ends_gradients |= (kind.begins_gradients || kind.begins_weights) && single_;
  kind.ends_gradients &= ends_matter;
  const bool writes_first = writes_ && !adds_up_shards(scenario_.strategy);
  kind.begins_gradients &=
      writes_first || scenario_.implementation.memory.weight_gradient == WeightGradient::fresh;
  kind.begins_weights &= writes_first;
  kind.follows_input &= has_work;
  return kind;
}

PassKind PassTimer::least(Pass pass) const {
  PassKind kind = normal({.pass = pass});
  // Without states the ZeRO stage is not known: each pass may be one that writes.
  const bool writes = writes_ && pass != Pass::forward && !(states_ && adds_up_shards(scenario_.strategy));
  kind.begins_gradients |= writes && pass != Pass::backward_weight;
  kind.begins_weights |= writes && pass != Pass::backward_input;
  return kind;
}

bool PassTimer::writes_gradients(const UnitStep& s, const PassKind& kind) const {
  if (!writes_ || kind.pass == Pass::forward) return false;
  return (states_ && adds_up_shards(scenario_.strategy)) ||
         (is_layer(s.unit) ? kind.begins_weights : kind.begins_gradients);
}

bool PassTimer::reduces(const PassKind& kind) const {
  return states_ && kind.pass != Pass::forward &&
         (scenario_.strategy.zero_stage >= 2 || (kind.ends_gradients && reduces_beside(scenario_)));
}
bool PassTimer::gathers(const PassKind& kind) const {
  return states_ && scenario_.strategy.zero_stage == 3 && kind.pass != Pass::backward_weight;
}
bool PassTimer::reads_ahead(const PassKind& kind) const {
  return states_ && kind.reads_ahead && gathers_ahead(scenario_);
}

int PassTimer::exchange(const PassKind& kind) const {
  // Layers' gradients go with the pass that ends them.
  if (reduces(kind))
    return kind.pass == Pass::backward_input ? states_->unbucketed.exchange : states_->exchange;
  const bool zeroes = kind.begins_gradients && !writes_;
  const bool any = states_ && (gathers(kind) || reads_ahead(kind) || zeroes);
  return any ? states_->unbucketed.exchange : -1;
}

TimedStep PassTimer::priced(const UnitStep& s, const PassKind& kind, const UnitBlocks* gather) const {
  const auto message = [&](std::int32_t units) {
    return message_of(states_->unbucketed.blocks, s.unit, units, kind.ends_gradients);
  };
  if (s.flushed > 0) return {.message = message(s.flushed), .count = 0};
  TimedStep step{.count = s.count, .reads = s.reads};
  const bool forward = kind.pass == Pass::forward;
  if (gather && s.reads && (*gather)[s.unit] >= 0) {
    step.gathers = true;
    const Phase phase = reads_ahead(kind) ? Phase::optimizer : forward ? Phase::forward : Phase::backward;
    step.gather = states_->unbucketed.blocks.of((*gather)[s.unit], phase);
    if (phase != Phase::optimizer) step.gather.work = work_before_gather(scenario_);
  }
  const LayerTimes* layer = is_layer(s.unit) ? &compute_.layers[static_cast<std::size_t>(s.kind)] : nullptr;
  if (s.recomputes) step.work = s.ends_group ? layer->recompute_last : layer->recompute;
  if (!s.works) return step;
  const bool begins = states_ && (kind.pass == Pass::backward || kind.pass == Pass::backward_input);
  if (begins) {
    BlockTimes& times = states_->unbucketed.blocks;
    const StepBlocks& blocks = times.blocks();
    if (kind.begins_gradients && !writes_) step.before = times.of(blocks.zero[s.unit], Phase::optimizer);
    step.before = in_turn(step.before, times.of(blocks.zero_whole[s.unit], Phase::backward));
  }
  if (s.recomputes) step.work = in_turn(step.work, std::exchange(step.before, {}));
  const bool first = writes_gradients(s, kind);
  const ActionTime& head_backward = first ? compute_.head_backward_first : compute_.head_backward;
  step.work = in_turn(step.work,
                      s.unit == Unit::embedding ? (forward ? compute_.embedding : compute_.embedding_backward)
                      : s.unit == Unit::head    ? (forward ? compute_.head : head_backward)
                      : forward                 ? layer->forward
                      : kind.pass == Pass::backward_input ? layer->input
                      : kind.pass == Pass::backward       ? (first ? layer->backward_first : layer->backward)
                                                          : (first ? layer->weight_first : layer->weight));
  if (s.bucket == 0) return step;
  step.message = message(s.bucket);
  step.bucket = s.bucket;
  step.waiting = s.waiting;
  return step;
}

PricedPass PassTimer::pass(const Piece& piece, const PassKind& kind,
                           std::pmr::memory_resource* memory) const {
  const bool ahead = reads_ahead(kind);
  const UnitBlocks* gather = nullptr;
  if (ahead || gathers(kind)) {
    const StepBlocks& blocks = states_->unbucketed.blocks.blocks();
    gather = ahead                        ? &blocks.gather_updated
             : kind.pass == Pass::forward ? &blocks.gather_for_forward
                                          : &blocks.gather_for_backward;
  }
  const bool sends = reduces(kind);
  thread_local std::vector<UnitStep> steps;  // kept from one pass to the next
  set_pass_steps(scenario_, piece, kind.pass, {.layers = sends, .ends = sends},
                 sends ? states_->bucket : BucketLayers{}, steps);
  PricedPass pass{std::pmr::vector<TimedStep>(memory),
                  {.gathers_in_pass = !ahead,
                   .work = kind.follows_input ? HostWork{} : software_.pass,
                   .interference = software_.interference,
                   .hosts = software_.hosts}};
  if (kind.begins_step) pass.begin.work.before += software_.before_first_pass;
  pass.steps.reserve(steps.size());
  for (const UnitStep& s : steps) pass.steps.push_back(priced(s, kind, gather));
  return pass;
}

namespace {

constexpr std::size_t kEndLanes = 4;
static_assert(kEndLanes >= kFroms);
using EndTime = LanesOf<kEndLanes>;
using EndClock = UnitClock<EndTime, true, kStreams>;

// What one stage does once in a step.
class StageOnce {
 public:
  StageOnce(const Scenario& scenario, std::span<const Piece::Run> units, const StepStates& states,
            const StepSoftware& software)
      : scenario_(scenario),
        units_(units),
        states_(states.unbucketed.blocks),
        blocks_(states_.blocks()),
        software_(software) {}

  void begin(DeviceClock& clock) const {
    if (scenario_.implementation.memory.weight_gradient == WeightGradient::fresh) return;
    ActionTime first = of_all(blocks_.zero);
    first.work = software_.pass;
    first.work.before += scenario_.implementation.host.step;
    clock.run(kComputeStream, first);
  }

  // Launches of the gathers of updated parameters.
  Seconds launches_of_gathers() const { return of_all(blocks_.gather_updated).host.launches; }

  // `reductions`: what was not reduced beside passes.
  void finish(EndClock& clock, const std::vector<ActionTime>& reductions, bool gathers,
              bool at_an_end) const {
    const EndTime ready = clock.free(kComputeStream);
    for (const ActionTime& message : reductions) clock.run(kCollectiveStream, message, ready);
    EndTime wait = clock.free(kCollectiveStream);
    HostWork work = software_.pass;
    for (const OnceStep& o : steps_before_update(blocks_)) {
      ActionTime step = o.units ? of_all(*o.units) : of(o.block);
      if (!is_there(step) || (o.at_an_end && !at_an_end)) continue;
      step.work = std::exchange(work, {});
      clock.run(kComputeStream, step, std::exchange(wait, clock.free(kComputeStream)));
    }
    if (scenario_.strategy.offload_optimizer) return update_on_host(clock, gathers);
    std::vector<TimedStep> updates;
    for (const Piece::Run& r : units_) {
      updates.push_back({.work = of(blocks_.update[r.unit]), .count = r.layers});
      if (!gathers) continue;
      updates.back().message = of(blocks_.gather_updated[r.unit]);
      updates.back().bucket = 1;
    }
    UnitRun<kEndLanes, true, false, EndClock>(clock, clock, updates, {}, 0).run();
  }

 private:
  ActionTime of(BlockId block) const { return states_.of(block, Phase::optimizer); }
  // A block of each of the stage's units, as one action.
  ActionTime of_all(const UnitBlocks& blocks) const {
    ActionTime all;
    for (const Piece::Run& r : units_) all = in_turn(all, repeated(of(blocks[r.unit]), r.layers));
    return all;
  }

  // Gradients go out, the host updates, parameters come in. The slowest of the three sets the pace where
  // units are alike.
  void update_on_host(EndClock& clock, bool gathers) const {
    const EndTime computed = clock.free(kComputeStream);
    for (const Piece::Run& r : units_) {
      const ActionTime out = of(blocks_.gradients_to_host[r.unit]), update = of(blocks_.update[r.unit]),
                       in = of(blocks_.parameters_from_host[r.unit]),
                       gather = of(blocks_.gather_updated[r.unit]);
      for (std::int32_t n = 0; n < r.layers; ++n) {
        const EndTime sent = clock.run(kToHostStream, out, computed).end;
        const EndTime updated = clock.run(kHostStream, update, sent).end;
        const EndTime received = clock.run(kFromHostStream, in, updated).end;
        if (gathers && is_there(gather)) clock.run(kCollectiveStream, gather, received);
      }
    }
  }

  const Scenario& scenario_;
  std::span<const Piece::Run> units_;
  BlockTimes& states_;
  const StepBlocks& blocks_;
  const StepSoftware& software_;
};

// What is not reduced beside passes, in the order of its messages.
std::vector<ActionTime> reductions_after_passes(const Scenario& scenario, const StepStates& states,
                                                const std::vector<const Piece*>& pieces) {
  std::vector<ActionTime> messages;
  const auto add = [&](Unit unit, std::int32_t units, std::int32_t times) {
    const ActionTime message = message_of(states.unbucketed.blocks, unit, units, true);
    if (is_there(message) && times > 0) messages.push_back(repeated(message, times));
  };
  std::vector<UnitStep> steps;
  for (const Piece* piece : pieces) {
    if (reduces_beside(scenario)) break;
    set_pass_steps(scenario, *piece, Pass::backward, {.layers = true, .ends = true}, states.bucket, steps);
    for (const UnitStep& s : steps) {
      if (s.flushed > 0) add(s.unit, s.flushed, 1);
      if (s.bucket > 0) add(s.unit, s.bucket, (s.waiting + s.count) / s.bucket);
    }
  }
  for (const Piece* piece : pieces)
    if (piece->first && defers_embedding(scenario)) add(Unit::embedding, 1, 1);
  return messages;
}

}  // namespace

StageEnds stage_ends(const Scenario& scenario, std::span<const Piece::Run> units,
                     const std::vector<const Piece*>& pieces, bool at_an_end, const StepStates& states,
                     const StepSoftware& software) {
  const StageOnce once(scenario, units, states, software);
  const bool ahead = gathers_ahead(scenario);
  StageEnds ends;
  DeviceClock begin(software.interference, false);
  if (ahead) begin.host() += once.launches_of_gathers();
  once.begin(begin);
  ends.host_begin = begin.host();
  ends.begin = begin.free(kComputeStream);
  EndClock clock(software.interference, false, everywhere<EndTime>(kNever));
  set_lane(clock.free(kComputeStream), kFromCompute, {});
  set_lane(clock.free(kCollectiveStream), kFromCollectives, {});
  set_lane(clock.host(), kFromHost, {});
  set_lane(clock.free(kSendStream), kFromSends, {});
  once.finish(clock, reductions_after_passes(scenario, states, pieces), !ahead, at_an_end);
  const EndTime end = clock.end();
  for (std::size_t i = 0; i < kFroms; ++i) ends.finish[i] = lane_of(end, i);
  return ends;
}

}  // namespace sim
