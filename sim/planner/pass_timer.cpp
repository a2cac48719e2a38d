#include "sim/planner/pass_timer.h"

#include <algorithm>
#include <utility>

#include "sim/planner/run_units.h"

namespace sim {
namespace {

const ActionTime* if_there(const ActionTime& t) {
  return is_there(t) ? &t : nullptr;
}

// Gradients of so many units in one message; of the last micro-batch, what replicas sum of each follows.
ActionTime message_of(const StateTimes& states, Unit unit, std::int32_t units, bool last) {
  const auto& buckets = has_experts(unit) ? states.reduce_expert_layers : states.reduce_layers;
  const auto found = buckets.find(units);
  const ActionTime& one = states.reduce[unit];
  const ActionTime message = !is_layer(unit) || found == buckets.end() ? repeated(one, units) : found->second;
  const ActionTime& others = states.only_last[unit];
  return last && is_there(others) ? in_turn(message, repeated(others, units)) : message;
}

}  // namespace

PassTimer::PassTimer(const Scenario& scenario, const ComputeTimes& compute, const StateTimes& states,
                     const StepSoftware& software, bool single)
    : scenario_(scenario), compute_(compute), states_(states), software_(software), single_(single) {
  const UnitTimes& last = states.only_last;
  last_differs_ =
      is_there(last.embedding) || is_there(last.layer) || is_there(last.expert_layer) || is_there(last.head);
}

PassTimer::Variant PassTimer::variant(PassKind kind) const {
  switch (kind) {
    case PassKind::forward:
      return {.pass = Pass::forward};
    case PassKind::first_forward:
      return {.pass = Pass::forward, .reads_ahead = true};
    case PassKind::first_of_stage:
      return {.pass = Pass::forward, .begins_step = true, .reads_ahead = true};
    case PassKind::backward:
      return {.pass = Pass::backward};
    case PassKind::first_backward:
      return {.pass = Pass::backward, .begins_gradients = true, .ends_gradients = single_};
    case PassKind::last_backward:
      return {.pass = Pass::backward, .ends_gradients = true};
    case PassKind::input:
      return {.pass = Pass::backward_input};
    case PassKind::first_input:
      return {.pass = Pass::backward_input, .begins_gradients = true, .ends_gradients = single_};
    case PassKind::last_input:
      return {.pass = Pass::backward_input, .ends_gradients = true};
    case PassKind::weight:
      return {.pass = Pass::backward_weight};
    case PassKind::last_weight:
      return {.pass = Pass::backward_weight, .ends_gradients = true};
    case PassKind::rest_weight:
      return {.pass = Pass::backward_weight, .rest = true};
    case PassKind::last_rest_weight:
      return {.pass = Pass::backward_weight, .ends_gradients = true, .rest = true};
  }
  return {};
}

PassKind PassTimer::same_as(PassKind kind) const {
  const auto ending = [&](PassKind last, PassKind usual) {
    const bool differs = reduces_beside(scenario_) && (scenario_.strategy.zero_stage < 2 || last_differs_);
    return differs ? last : usual;
  };
  const bool begins = scenario_.implementation.memory.weight_gradient == WeightGradient::fresh;
  const bool has_work = software_.pass.waits || software_.pass.before.value > 0;
  switch (kind) {
    case PassKind::first_of_stage:
      return software_.before_first_pass.value > 0 ? kind : same_as(PassKind::first_forward);
    case PassKind::first_forward:
      return gathers_ahead(scenario_) ? kind : PassKind::forward;
    case PassKind::first_backward:
      return begins ? kind : same_as(single_ ? PassKind::last_backward : PassKind::backward);
    case PassKind::first_input:
      return begins ? kind : same_as(single_ ? PassKind::last_input : PassKind::input);
    case PassKind::last_backward:
      return ending(kind, PassKind::backward);
    case PassKind::last_input:
      return ending(kind, PassKind::input);
    case PassKind::last_weight:
      return ending(kind, PassKind::weight);
    case PassKind::rest_weight:
      return has_work ? kind : PassKind::weight;
    case PassKind::last_rest_weight:
      return has_work ? ending(kind, PassKind::rest_weight) : same_as(PassKind::last_weight);
    case PassKind::forward:
    case PassKind::backward:
    case PassKind::input:
    case PassKind::weight:
      break;
  }
  return kind;
}

bool PassTimer::reduces(const Variant& v) const {
  return v.pass != Pass::forward &&
         (scenario_.strategy.zero_stage >= 2 || (v.ends_gradients && reduces_beside(scenario_)));
}
bool PassTimer::gathers(const Variant& v) const {
  return scenario_.strategy.zero_stage == 3 && v.pass != Pass::backward_weight;
}

PassTimer::Needs PassTimer::needs(PassKind kind) const {
  const Variant v = variant(kind);
  const bool ahead = v.reads_ahead && gathers_ahead(scenario_);
  return {.exchanges = gathers(v) || ahead || reduces(v) || v.begins_gradients ||
                       (scenario_.strategy.zero_stage >= 2 && v.pass != Pass::forward),
          .buckets = reduces(v) && v.pass != Pass::backward_input,
          .ahead = gathers(v)};
}

TimedStep PassTimer::priced(const UnitStep& s, const Variant& v, const UnitTimes* gather) const {
  if (s.flushed > 0) return {.message = message_of(states_, s.unit, s.flushed, v.ends_gradients), .count = 0};
  TimedStep step{.count = s.count, .reads = s.reads};
  const bool forward = v.pass == Pass::forward;
  const LayerTimes* layer = is_layer(s.unit) ? &compute_.layers[static_cast<std::size_t>(s.kind)] : nullptr;
  if (gather && s.reads) step.gather = if_there((*gather)[s.unit]);
  if (s.recomputes) step.work = s.ends_group ? layer->recompute_last : layer->recompute;
  if (!s.works) return step;
  if (v.begins_gradients) step.before = states_.zero[s.unit];
  if (v.pass == Pass::backward || v.pass == Pass::backward_input)
    step.before = in_turn(step.before, states_.zero_whole[s.unit]);
  if (s.recomputes) step.work = in_turn(step.work, std::exchange(step.before, {}));
  step.work = in_turn(step.work, s.unit == Unit::embedding
                                     ? (forward ? compute_.embedding : compute_.embedding_backward)
                                 : s.unit == Unit::head ? (forward ? compute_.head : compute_.head_backward)
                                 : forward              ? layer->forward
                                 : v.pass == Pass::backward       ? layer->backward
                                 : v.pass == Pass::backward_input ? layer->input
                                                                  : layer->weight);
  if (s.bucket == 0) return step;
  step.message = message_of(states_, s.unit, s.bucket, v.ends_gradients);
  step.bucket = s.bucket;
  step.waiting = s.waiting;
  return step;
}

PassTimer::Order PassTimer::order(PassKind kind) const {
  const Variant v = variant(kind);
  const bool sends = reduces(v);
  return {v.pass, sends, sends ? states_.bucket : BucketLayers{}};
}

PassTime PassTimer::time(const std::vector<UnitStep>& steps, PassKind kind) const {
  const Variant v = variant(kind);
  const bool ahead = v.reads_ahead && gathers_ahead(scenario_);
  const UnitTimes* gather = ahead                     ? &states_.gather_updated
                            : !gathers(v)             ? nullptr
                            : v.pass == Pass::forward ? &states_.gather_for_forward
                                                      : &states_.gather_for_backward;
  thread_local std::vector<TimedStep> timed;  // kept from one pass to the next
  timed.clear();
  for (const UnitStep& s : steps) timed.push_back(priced(s, v, gather));
  PassBegin begin{.prefetch = scenario_.strategy.prefetch,
                  .gathers_in_pass = !ahead,
                  .work = v.rest ? HostWork{} : software_.pass,
                  .interference = software_.interference,
                  .hosts = software_.hosts};
  if (v.begins_step) begin.work.before += software_.before_first_pass;
  return time_pass(timed, begin);
}

namespace {

constexpr std::size_t kEndLanes = 4;
static_assert(kEndLanes >= kFroms);
using EndTime = LanesOf<kEndLanes>;
using EndClock = UnitClock<EndTime, true, kStreams>;

// The once of a step of one stage.
class StageOnce {
 public:
  StageOnce(const Scenario& scenario, std::span<const Piece::Run> units, const StateTimes& states,
            const StepSoftware& software)
      : scenario_(scenario), units_(units), states_(states), software_(software) {}

  void begin(DeviceClock& clock) const {
    if (scenario_.implementation.memory.weight_gradient == WeightGradient::fresh) return;
    ActionTime first = all_of(states_.zero);
    first.work = software_.pass;
    first.work.before += scenario_.implementation.host.step;
    clock.run(kComputeStream, first);
  }

  // For updated parameters.
  Seconds launches_of_gathers() const { return all_of(states_.gather_updated).host.launches; }

  // `reductions`: what was not reduced beside passes.
  void finish(EndClock& clock, const std::vector<ActionTime>& reductions, bool gathers,
              bool at_an_end) const {
    const EndTime ready = clock.free(kComputeStream);
    for (const ActionTime& message : reductions) clock.run(kCollectiveStream, message, ready);
    ActionTime norm = states_.zero_norm;
    norm.work = software_.pass;
    clock.run(kComputeStream, norm, clock.free(kCollectiveStream));
    ActionTime before = at_an_end ? states_.sum_tied_embedding : ActionTime{};
    before = in_turn(before, all_of(states_.unscale));
    before = in_turn(before, states_.read_overflow);
    before = in_turn(before, all_of(states_.norm));
    before = in_turn(before, in_turn(states_.sum_norm, states_.clip));
    clock.run(kComputeStream, before);
    if (scenario_.strategy.offload_optimizer) return update_on_host(clock, gathers);
    std::vector<TimedStep> updates;
    for_each_unit([&](Unit unit, std::int32_t count) {
      updates.push_back({.work = states_.update[unit], .count = count});
      if (!gathers) return;
      updates.back().message = states_.gather_updated[unit];
      updates.back().bucket = 1;
    });
    UnitRun<kEndLanes, true, false, EndClock>(clock, clock, updates, {}).run();
  }

 private:
  // As one action.
  ActionTime all_of(const UnitTimes& times) const {
    ActionTime all;
    for_each_unit([&](Unit unit, std::int32_t count) { all = in_turn(all, repeated(times[unit], count)); });
    return all;
  }

  template <class Visit>
  void for_each_unit(Visit visit) const {
    for (const Piece::Run& r : units_) visit(r.unit, r.layers);
  }

  // Gradients go out, the host updates, parameters come in: the slowest of the three sets the pace of units
  // alike.
  void update_on_host(EndClock& clock, bool gathers) const {
    const EndTime computed = clock.free(kComputeStream);
    for_each_unit([&](Unit u, std::int32_t count) {
      for (std::int32_t n = 0; n < count; ++n) {
        const EndTime out = clock.run(kToHostStream, states_.gradients_to_host[u], computed).end;
        const EndTime updated = clock.run(kHostStream, states_.update[u], out).end;
        const EndTime in = clock.run(kFromHostStream, states_.parameters_from_host[u], updated).end;
        if (gathers && is_there(states_.gather_updated[u]))
          clock.run(kCollectiveStream, states_.gather_updated[u], in);
      }
    });
  }

  const Scenario& scenario_;
  std::span<const Piece::Run> units_;
  const StateTimes& states_;
  const StepSoftware& software_;
};

// What is not reduced beside passes, in the order of its messages.
std::vector<ActionTime> reductions_after_passes(const Scenario& scenario, const StateTimes& states,
                                                const std::vector<const Piece*>& pieces) {
  std::vector<ActionTime> messages;
  const auto add = [&](Unit unit, std::int32_t units, std::int32_t times) {
    const ActionTime message = message_of(states, unit, units, true);
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
                     const std::vector<const Piece*>& pieces, bool at_an_end, const StateTimes& states,
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
