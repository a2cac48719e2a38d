#include "sim/planner/unit_steps.h"

#include <algorithm>
#include <utility>

#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"

namespace sim {
namespace {

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

// What a step is made of.
const ActionTime kNothing{};
struct Work {
  const ActionTime& compute;
  const ActionTime& recompute = kNothing;
  const ActionTime& before = kNothing;
  const ActionTime& begin = kNothing;
};
void set(UnitStep& step, const Work& work) {
  step.recompute = work.recompute;
  step.before = work.before;
  step.compute = work.compute;
  step.begin = work.begin;
}
void set(DeviceStep& step, const Work& work) {
  const Seconds rest = work.before.duration + work.compute.duration;
  if (is_there(work.recompute)) {
    step.compute = work.recompute.duration + rest;
  } else {
    step.before = work.before.duration;
    step.compute = work.compute.duration;
  }
}
void set(ActionTime& message, const ActionTime& time) {
  message = time;
}
void set(MessageTime& message, const ActionTime& time) {
  message = message_of(time);
}
void set_gather(UnitStep& step, const ActionTime& time, const HostWork& work) {
  step.gather = time;
  step.gather.work = work;
}
void set_gather(DeviceStep& step, const ActionTime& time, const HostWork& work) {
  set(step.gather, time);
  step.before_gather = work.before;
}

// Gradients go when as many layers as a bucket holds have them, when a unit of another sort has, or at the
// pass's end.
template <class Step>
class StepList {
 public:
  // What is gathered, and the gradients that are reduced, by whose times; null: nothing.
  StepList(const StateTimes& states, const UnitTimes* gather, const HostWork& of_gather,
           const UnitTimes* reduce, std::vector<Step>& into)
      : states_(states), gather_(gather), of_gather_(of_gather), reduce_(reduce), steps_(into) {
    constexpr std::size_t kUsual = 8;  // so that most lists are allocated once
    steps_.clear();
    steps_.reserve(kUsual);
  }

  void add(UnitTime unit, const Work& work, std::int32_t count, bool reads, bool reduces) {
    if (count <= 0) return;
    Step step;
    set(step, work);
    step.count = count;
    step.reads = reads;
    if (gather_ && reads) set_gather(step, gather_->*unit, of_gather_);
    if (!reduce_ || !reduces) return steps_.push_back(step);
    if (bucketed_ > 0 && unit != of_bucket_) {
      const std::int32_t others = step.count - 1;
      step.count = 1;
      add_reducing(unit, step, bucket());
      step.count = others;
    }
    add_reducing(unit, step, {});
  }

  // What has not gone yet does with the last step.
  void end() {
    if (bucketed_ == 0) return;
    Step& last = last_alone();
    last.reduce = in_turn(last.reduce, bucket());
  }

 private:
  using Message = decltype(Step::reduce);

  void add_reducing(UnitTime unit, Step step, const Message& earlier) {
    const std::int32_t most = unit == &UnitTimes::layer          ? states_.bucket.dense
                              : unit == &UnitTimes::expert_layer ? states_.bucket.experts
                                                                 : 1;
    if (most <= 1) {
      if (step.count <= 0) return;
      step.reduce = in_turn(earlier, message(reduce_->*unit));
      steps_.push_back(step);
      return;
    }
    of_bucket_ = unit;
    step.reduce = earlier;
    while (step.count > 0) {
      Step some = step;
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

  static Message message(const ActionTime& time) {
    Message m;
    set(m, time);
    return m;
  }

  // The message of what is there, then what replicas sum, layer by layer.
  Message bucket() {
    const std::int32_t n = std::exchange(bucketed_, 0);
    const auto& messages =
        of_bucket_ == &UnitTimes::expert_layer ? states_.reduce_expert_layers : states_.reduce_layers;
    const auto found = messages.find(n);
    const Message layers =
        found != messages.end() ? message(found->second) : repeated(message(states_.reduce.*of_bucket_), n);
    const ActionTime& others = states_.only_last.*of_bucket_;
    return reduce_ == &states_.reduce_last && is_there(others) ? in_turn(layers, repeated(message(others), n))
                                                               : layers;
  }

  Step& last_alone() {
    Step& last = steps_.back();
    if (last.count == 1) return last;
    Step alone = last;
    alone.count = 1;
    --last.count;
    steps_.push_back(alone);
    return steps_.back();
  }

  const StateTimes& states_;
  const UnitTimes* gather_;
  const HostWork& of_gather_;
  const UnitTimes* reduce_;
  std::vector<Step>& steps_;
  UnitTime of_bucket_ = nullptr;
  std::int32_t bucketed_ = 0;  // layers that wait for others
};

}  // namespace

// A tied embedding's gradients come from micro-batches of both directions.
bool UnitSteps::defers_embedding() const {
  return scenario_.model.tie_word_embeddings &&
         placement_of(scenario_.strategy.schedule) == Placement::two_directions;
}

const UnitTimes* UnitSteps::reduced(Reduce reduce) const {
  return reduce == Reduce::none ? nullptr : reduce == Reduce::each ? &states_.reduce : &states_.reduce_last;
}

template <class Step>
void UnitSteps::forward(const Piece& piece, const UnitTimes* gather, std::vector<Step>& into) const {
  StepList<Step> steps(states_, gather, of_gather_, nullptr, into);
  if (piece.first) steps.add(&UnitTimes::embedding, {compute_.embedding}, 1, true, false);
  for (const Piece::Run& r : piece.runs)
    steps.add(unit_of(r), {compute_.layers[r.kind].forward}, r.layers, true, false);
  if (piece.last) steps.add(&UnitTimes::head, {compute_.head}, 1, true, false);
}

template <class Step>
void UnitSteps::backward(const Piece& piece, ActionTime LayerTimes::*pass, Reduce reduce,
                         std::vector<Step>& into) const {
  const Strategy& strategy = scenario_.strategy;
  const bool of_layers = pass == &LayerTimes::backward;
  StepList<Step> steps(states_, strategy.zero_stage == 3 ? &states_.gather_for_backward : nullptr, of_gather_,
                       reduced(reduce), into);
  const auto zeroed = [&](UnitTime unit) -> const ActionTime& {
    return strategy.zero_stage >= 2 ? states_.zero_whole.*unit : kNothing;
  };
  const bool fresh = scenario_.implementation.memory.weight_gradient == WeightGradient::fresh;
  const auto begun = [&](UnitTime unit) -> const ActionTime& { return fresh ? states_.zero.*unit : kNothing; };
  const auto add = [&](UnitTime unit, const ActionTime& compute, std::int32_t count, bool reads, bool reduces) {
    steps.add(unit, {compute, kNothing, zeroed(unit), begun(unit)}, count, reads, reduces);
  };
  if (piece.last) add(&UnitTimes::head, compute_.head_backward, 1, true, true);
  const std::int32_t interval = recompute_interval(strategy, piece.layers());
  if (interval == 1) {
    for (std::size_t i = piece.runs.size(); i-- > 0;) {
      const Piece::Run& r = piece.runs[i];
      const LayerTimes& layer = compute_.layers[r.kind];
      const UnitTime unit = unit_of(r);
      steps.add(unit, {layer.*pass, layer.recompute_last, zeroed(unit), begun(unit)}, r.layers, true,
                of_layers);
    }
  } else {
    // A group's layers run forward again, then backward with the parameters that are there.
    for (std::int32_t end = piece.layers(); end > 0;) {
      const std::int32_t first = (end - 1) / interval * interval;
      for_each_run(piece, first, end - 1, [&](const Piece::Run& r, std::int32_t n) {
        steps.add(unit_of(r), {compute_.layers[r.kind].recompute}, n, true, false);
      });
      for_each_run(piece, end - 1, end, [&](const Piece::Run& r, std::int32_t n) {
        steps.add(unit_of(r), {compute_.layers[r.kind].recompute_last}, n, true, false);
      });
      for_each_run_back(piece, first, end, [&](const Piece::Run& r, std::int32_t n) {
        add(unit_of(r), compute_.layers[r.kind].*pass, n, false, of_layers);
      });
      end = first;
    }
  }
  if (piece.first) add(&UnitTimes::embedding, compute_.embedding_backward, 1, true, !defers_embedding());
  steps.end();
}

template <class Step>
void UnitSteps::weights(const Piece& piece, Reduce reduce, std::vector<Step>& into) const {
  StepList<Step> steps(states_, nullptr, of_gather_, reduced(reduce), into);
  for (std::size_t i = piece.runs.size(); i-- > 0;) {
    const Piece::Run& r = piece.runs[i];
    steps.add(unit_of(r), {compute_.layers[r.kind].weight}, r.layers, true, true);
  }
  steps.end();
}

std::vector<UnitStep> UnitSteps::reductions(const Piece& piece) const {
  std::vector<UnitStep> messages;
  StepList<UnitStep> steps(states_, nullptr, of_gather_, &states_.reduce_last, messages);
  if (piece.last) steps.add(&UnitTimes::head, {kNothing}, 1, true, true);
  for (std::size_t i = piece.runs.size(); i-- > 0;)
    steps.add(unit_of(piece.runs[i]), {kNothing}, piece.runs[i].layers, true, true);
  if (piece.first && !defers_embedding()) steps.add(&UnitTimes::embedding, {kNothing}, 1, true, true);
  steps.end();
  return messages;
}

template void UnitSteps::forward(const Piece&, const UnitTimes*, std::vector<UnitStep>&) const;
template void UnitSteps::forward(const Piece&, const UnitTimes*, std::vector<DeviceStep>&) const;
template void UnitSteps::backward(const Piece&, ActionTime LayerTimes::*, Reduce,
                                  std::vector<UnitStep>&) const;
template void UnitSteps::backward(const Piece&, ActionTime LayerTimes::*, Reduce,
                                  std::vector<DeviceStep>&) const;
template void UnitSteps::weights(const Piece&, Reduce, std::vector<UnitStep>&) const;
template void UnitSteps::weights(const Piece&, Reduce, std::vector<DeviceStep>&) const;

}  // namespace sim
