#include "sim/planner/candidate_walk.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "sim/plan/builder.h"
#include "sim/plan/legality.h"
#include "sim/plan/schedule.h"
#include "sim/planner/lanes.h"
#include "sim/planner/step_estimator.h"

namespace sim {

std::string_view said_twice(const SearchSpace& space, const Strategy& t) {
  const auto tries_0 = [](const std::vector<int>& values) { return std::ranges::count(values, 0) > 0; };
  if (t.expert_tensor_parallel == t.tensor_parallel && tries_0(space.expert_tensor_parallel))
    return "strategy.expert_tensor_parallel";
  if (t.shard_group == data_ranks(t) && tries_0(space.shard_group)) return "strategy.shard_group";
  return {};
}

namespace {

std::int64_t count(const auto& values) {
  return static_cast<std::int64_t>(values.size());
}

// Where parameters and their states lie: one value for each of the search space's last fields.
struct StateChoice {
  int zero_stage = 0, shard_group = 0, prefetch = 1;
  std::int64_t gradient_bucket = 0;
  bool offload_optimizer = false;
  void apply(Strategy& s) const {
    s.zero_stage = zero_stage;
    s.shard_group = shard_group;
    s.prefetch = prefetch;
    s.gradient_bucket = gradient_bucket;
    s.offload_optimizer = offload_optimizer;
  }
  // validate() treats choices of one kind alike. They may differ in how many units are gathered ahead, unless
  // it is one, and in bucket sizes.
  auto kind() const {
    const auto sign = [](auto n) { return n > 0 ? 1 : n < 0 ? -1 : 0; };
    return std::make_tuple(zero_stage, shard_group,
                           prefetch == 1        ? 2
                           : sign(prefetch) < 0 ? -1
                                                : 0,
                           sign(gradient_bucket), offload_optimizer);
  }
};
std::vector<StateChoice> state_choices(const SearchSpace& space) {
  std::vector<StateChoice> choices;
  for (const int zero : space.zero_stage)
    for (const int group : space.shard_group)
      for (const int prefetch : space.prefetch)
        for (const std::int64_t bucket : space.gradient_bucket)
          for (const bool offload : space.offload_optimizer)
            choices.push_back({zero, group, prefetch, bucket, offload});
  return choices;
}

// Empty: no problem.
using Refusal = std::string;
Refusal refusal(const SearchSpace& space, const Scenario& s) {
  const std::vector<Problem> problems = validate(s);
  return problems.empty() ? Refusal(said_twice(space, s.strategy)) : problems.front().field;
}

}  // namespace

SpaceShape::SpaceShape(const SearchSpace& s) {
  layouts = count(s.devices) * count(s.global_batch_size) * count(s.rank_order) * count(s.tensor_parallel) *
            count(s.context_parallel) * count(s.expert_parallel) * count(s.expert_tensor_parallel) *
            count(s.context_parallel_comm) * count(s.sequence_parallel);
  passes = count(s.recompute) * count(s.offload_activations) * count(s.micro_batch_size);
  pipelines = count(s.pipeline_parallel) * count(s.schedule) * count(s.virtual_pipeline);
  states = count(s.zero_stage) * count(s.shard_group) * count(s.prefetch) * count(s.gradient_bucket) *
           count(s.offload_optimizer);
}

struct CandidateWalk::Shared {
  const SearchSpace& space;
  std::int64_t begin, end;
  SpaceShape shape;
  std::vector<StateChoice> states;
  StepEstimator steps;
  // Why a schedule with so many chunks is refused, by (stages, micro-batches).
  std::map<std::pair<int, std::int64_t>, std::vector<Refusal>> schedules;
};

// The candidates of one layout.
class CandidateWalk::Layout {
 public:
  Layout(Shared& shared, std::int64_t layout, const std::stop_token& stop, Collector& collector)
      : w_(shared),
        space_(shared.space),
        stop_(stop),
        collector_(collector),
        begin_(layout * shared.shape.of_layout()),
        scenario_(candidate(shared.space, begin_)),
        devices_(0),
        global_batch_(scenario_.workload.global_batch_size) {
    // The first candidate has the first number of stages, which need not divide the devices.
    std::int64_t left = layout;
    const std::int64_t of_devices = shared.shape.layouts / count(space_.devices);
    devices_ = space_.devices[static_cast<std::size_t>(left / of_devices)];
    neutral(scenario_.strategy);
    find_stages();
  }

  void run() {
    std::int64_t pass = 0;
    for (const RecomputeChoice& recompute : space_.recompute)
      for (const bool offload : space_.offload_activations) {
        scenario_.strategy.recompute = recompute.recompute;
        scenario_.strategy.recompute_interval = recompute.interval;
        scenario_.strategy.offload_activations = offload;
        const std::int64_t each = count(space_.micro_batch_size);
        for (std::int64_t i = 0; i < each; ++i) {
          scenario_.workload.micro_batch_size = space_.micro_batch_size[static_cast<std::size_t>(i)];
          for (std::size_t p = 0; p < stages_.size(); ++p) {
            if (stop_.stop_requested()) return;
            of_stages(p, pass + i);
          }
        }
        pass += each;
      }
    w_.steps.forget_layout();
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  // Choices of states with the same effect: many bucket sizes hold equally many layers.
  struct AlikeStates {
    const StateChoice* choice = nullptr;  // the first of them
    const StepStates* states = nullptr;
    std::vector<std::size_t> choices;
  };
  // For each choice of states the number of its reason, or kNone; and how many choices each reason refuses.
  struct Refusals {
    std::vector<std::size_t> reason;
    std::map<std::size_t, std::int64_t> choices;
  };
  // For one number of stages.
  struct Stages {
    int stages = 1, data_parallel = 0;
    Refusal refusal;
    Refusals states, states_two_directions;  // of choices of states, by how many directions the pipeline has
    std::map<StatePlaces, std::vector<AlikeStates>> alike;
  };
  // Candidates that wait for their time: all of them, or those that are drawn. Times are found for several
  // candidates at once.
  struct Waiting {
    const AlikeStates* states = nullptr;
    Bytes memory;
    std::size_t asked = 0;
    bool all = true;
  };

  static void neutral(Strategy& s) {
    s.pipeline_parallel = s.virtual_pipeline = 1;
    s.schedule = kPlainSchedule;
    s.recompute = Recompute::none;
    s.recompute_interval = 1;
    s.offload_activations = false;
    StateChoice{}.apply(s);
  }

  void find_stages() {
    const Strategy& t = scenario_.strategy;
    for (const int stages : space_.pipeline_parallel) {
      Stages& found = stages_.emplace_back();
      found.stages = stages;
      const std::int64_t others = std::int64_t{t.tensor_parallel} * t.context_parallel * stages;
      if (others > 0 && devices_ % others == 0) found.data_parallel = static_cast<int>(devices_ / others);
      Scenario s = scenario_;
      neutral(s.strategy);
      s.strategy.pipeline_parallel = stages;
      s.strategy.data_parallel = found.data_parallel;
      s.workload.micro_batch_size = 1;
      // A batch that every schedule can run.
      s.workload.global_batch_size = std::int64_t{4} * stages * std::max(1, found.data_parallel);
      found.refusal = refusal(space_, s);
      if (!found.refusal.empty()) continue;
      found.states = reasons(s, kPlainSchedule);
      if (stages % 2 == 0)
        found.states_two_directions = reasons(s, plainest_schedule(Placement::two_directions, true));
    }
  }

  // Why each choice of states is refused with a schedule.
  Refusals reasons(Scenario s, std::string_view schedule) {
    s.strategy.schedule = schedule;
    std::map<decltype(StateChoice{}.kind()), std::size_t> known;
    Refusals found;
    for (const StateChoice& choice : w_.states) {
      const auto [it, added] = known.try_emplace(choice.kind(), kNone);
      if (added) {
        choice.apply(s.strategy);
        if (const Refusal why = refusal(space_, s); !why.empty()) it->second = collector_.reason(why);
      }
      found.reason.push_back(it->second);
      if (it->second != kNone) ++found.choices[it->second];
    }
    return found;
  }

  void refuse(const Refusal& why, std::int64_t first, std::int64_t candidates) {
    const std::int64_t last = std::min(w_.end, first + candidates);
    first = std::max(w_.begin, first);
    if (first < last) collector_.refuse(collector_.reason(why), last - first);
  }

  void of_stages(std::size_t p, std::int64_t pass) {
    const std::int64_t chunkings = count(space_.schedule) * count(space_.virtual_pipeline);
    const std::int64_t each = chunkings * w_.shape.states;
    const std::int64_t first =
        begin_ + (pass * count(space_.pipeline_parallel) + static_cast<std::int64_t>(p)) * each;
    if (first >= w_.end || first + each <= w_.begin) return;
    Stages& stages = stages_[p];
    if (!stages.refusal.empty()) return refuse(stages.refusal, first, each);
    Strategy& t = scenario_.strategy;
    t.pipeline_parallel = stages.stages;
    t.data_parallel = stages.data_parallel;
    t.virtual_pipeline = 1;
    t.schedule = kPlainSchedule;
    StateChoice{}.apply(t);
    scenario_.workload.global_batch_size = global_batch_;
    const std::int64_t a_round = scenario_.workload.micro_batch_size * t.data_parallel;
    if (a_round > 0 && global_batch_ % a_round != 0) return refuse("workload.global_batch_size", first, each);
    if (const Refusal why = refusal(space_, scenario_); !why.empty()) return refuse(why, first, each);

    const std::vector<Refusal>& schedules = schedules_of(stages.stages, global_batch_ / a_round);
    std::map<BackwardParts, StepPasses> passes;  // schedules that split backward alike run the same
    std::int64_t row = first;
    std::size_t chunking = 0;
    for (const std::string& schedule : space_.schedule)
      for (const int chunks : space_.virtual_pipeline) {
        const Refusal& why = schedules[chunking++];
        if (!why.empty()) {
          refuse(why, row, w_.shape.states);
        } else if (row < w_.end && row + w_.shape.states > w_.begin) {
          t.schedule = schedule;
          t.virtual_pipeline = chunks;
          StateChoice{}.apply(t);
          if (w_.steps.must_run(t)) {
            run_each_state(stages, row);
          } else {
            const BackwardParts parts = backward_parts(schedule);
            auto known = passes.find(parts);
            if (known == passes.end()) known = passes.emplace(parts, w_.steps.passes(scenario_)).first;
            of_pipeline(stages, known->second, row);
          }
        }
        row += w_.shape.states;
      }
  }

  const std::vector<Refusal>& schedules_of(int stages, std::int64_t micro_batches) {
    const auto [it, added] = w_.schedules.try_emplace({stages, micro_batches});
    if (!added) return it->second;
    Scenario s = scenario_;
    StateChoice{}.apply(s.strategy);
    for (const std::string& schedule : space_.schedule)
      for (const int chunks : space_.virtual_pipeline) {
        s.strategy.schedule = schedule;
        s.strategy.virtual_pipeline = chunks;
        it->second.push_back(refusal(space_, s));
      }
    return it->second;
  }

  void run_each_state(const Stages& stages, std::int64_t row) {
    refuse_states(stages, row);
    const Refusals& refusals = refusals_of(stages);
    for (std::size_t i = 0; i < w_.states.size(); ++i) {
      const std::int64_t index = row + static_cast<std::int64_t>(i);
      if (refusals.reason[i] != kNone || !in_range(index)) continue;
      w_.states[i].apply(scenario_.strategy);
      const Estimate e = w_.steps.by_running(scenario_);
      if (e.memory <= collector_.most_memory() || collector_.is_drawn(index))
        collector_.add(index, devices_, tokens_of_step(scenario_.workload), e);
      else
        collector_.add_too_large(index, e.memory);
    }
  }

  bool in_range(std::int64_t index) const { return index >= w_.begin && index < w_.end; }
  void refuse_states(const Stages& stages, std::int64_t row) {
    const Refusals& refusals = refusals_of(stages);
    if (in_range(row) && in_range(row + w_.shape.states - 1)) {
      for (const auto& [why, choices] : refusals.choices) collector_.refuse(why, choices);
      return;
    }
    for (const std::size_t why : refusals.reason) {
      if (why != kNone && in_range(row)) collector_.refuse(why, 1);
      ++row;
    }
  }
  const Refusals& refusals_of(const Stages& stages) const {
    const bool two = placement_of(scenario_.strategy.schedule) == Placement::two_directions;
    return two ? stages.states_two_directions : stages.states;
  }

  // visit(index) for the candidates of a row that have these states.
  template <class Visit>
  void each_of(const AlikeStates& states, std::int64_t row, Visit visit) const {
    for (const std::size_t choice : states.choices)
      if (const std::int64_t index = row + static_cast<std::int64_t>(choice); in_range(index)) visit(index);
  }

  template <class Predicate>
  bool any_of(const AlikeStates& states, std::int64_t row, Predicate is) const {
    return std::ranges::any_of(states.choices, [&](std::size_t choice) {
      const std::int64_t index = row + static_cast<std::int64_t>(choice);
      return in_range(index) && is(index);
    });
  }

  void of_pipeline(Stages& stages, StepPasses& passes, std::int64_t row) {
    refuse_states(stages, row);
    StepPipeline pipeline(scenario_, passes, w_.steps.schedule(scenario_));
    const double tokens = tokens_of_step(scenario_.workload);
    const auto that_matters = [&](Seconds least) {
      return collector_.memory_that_matters(devices_, tokens, least);
    };
    Bytes of_any_state = that_matters(pipeline.least_time());
    const auto leave = [&](std::int64_t index, Bytes memory) {
      if (memory <= collector_.most_memory())
        collector_.add_beaten();
      else
        collector_.add_too_large(index, memory);
    };
    const auto add_waiting = [&] {
      pipeline.run_asked();
      for (const Waiting& w : waiting_) {
        w.states->choice->apply(scenario_.strategy);
        const Estimate estimate{pipeline.time(scenario_, *w.states->states, w.asked), w.memory};
        std::optional<Collector::Added> added;
        each_of(*w.states, row, [&](std::int64_t index) {
          if (!w.all && !collector_.is_drawn(index)) return leave(index, w.memory);
          if (added && collector_.add_alike(index, *added)) return;
          added = collector_.add(index, devices_, tokens, estimate);
        });
      }
      waiting_.clear();
      of_any_state = that_matters(pipeline.least_time());
    };
    for (const AlikeStates& d : alike_states(stages)) {
      if (!any_of(d, row, [](std::int64_t) { return true; })) continue;
      d.choice->apply(scenario_.strategy);
      const bool drawn = any_of(d, row, [&](std::int64_t index) { return collector_.is_drawn(index); });
      const auto matters = [&](Bytes memory) {
        return memory <= collector_.most_memory() &&
               (collector_.times_all() ||
                (memory <= of_any_state &&
                 memory <= that_matters(pipeline.least_time(scenario_, *d.states))));
      };
      // For most candidates, bounds of the memory are enough: they fit and are beaten, or they are too large
      // and not the smallest.
      const PipelineMemory::Bounds bounds = pipeline.memory_bounds(scenario_, *d.states);
      const bool bounds_say =
          !drawn && !matters(bounds.least) &&
          (bounds.most <= collector_.most_memory() ||
           bounds.least > std::max(collector_.most_memory(), collector_.smallest_memory()));
      const Bytes memory = bounds_say ? bounds.least : pipeline.memory(scenario_, *d.states);
      const bool is_timed = !bounds_say && matters(memory);
      if (!is_timed && !drawn) {
        each_of(d, row, [&](std::int64_t index) { leave(index, memory); });
        continue;
      }
      waiting_.push_back({&d, memory, pipeline.ask(scenario_, *d.states), is_timed});
      if (pipeline.waiting() == 0 || pipeline.waiting() == kLanes) add_waiting();
    }
    add_waiting();
  }

  // The alike choices of states with the scenario's schedule.
  const std::vector<AlikeStates>& alike_states(Stages& stages) {
    const auto [known, added] = stages.alike.try_emplace(state_places(scenario_));
    std::vector<AlikeStates>& alike = known->second;
    if (!added) return alike;
    const Refusals& refusals = refusals_of(stages);
    std::map<std::pair<const StepStates*, int>, std::size_t> met;
    for (std::size_t i = 0; i < w_.states.size(); ++i) {
      if (refusals.reason[i] != kNone) continue;
      const StateChoice& choice = w_.states[i];
      choice.apply(scenario_.strategy);
      const StepStates& states = w_.steps.states(scenario_);
      const auto [place, is_new] = met.try_emplace({&states, choice.prefetch}, alike.size());
      if (is_new) alike.push_back({&choice, &states, {}});
      alike[place->second].choices.push_back(i);
    }
    StateChoice{}.apply(scenario_.strategy);
    return alike;
  }

  Shared& w_;
  const SearchSpace& space_;
  const std::stop_token& stop_;
  Collector& collector_;
  std::int64_t begin_;  // of the layout
  Scenario scenario_;
  int devices_;
  std::int64_t global_batch_;
  std::vector<Stages> stages_;
  std::vector<Waiting> waiting_;
};

CandidateWalk::CandidateWalk(const SearchSpace& space, const Calibration* calibration, std::int64_t begin,
                             std::int64_t end, std::shared_ptr<Schedules> schedules)
    : shared_(new Shared{.space = space,
                         .begin = begin,
                         .end = end,
                         .shape = SpaceShape(space),
                         .states = state_choices(space),
                         .steps = StepEstimator(space.base, calibration, std::move(schedules)),
                         .schedules = {}}) {}
CandidateWalk::~CandidateWalk() = default;

void CandidateWalk::run(std::int64_t layout, const std::stop_token& stop, Collector& collector) {
  Layout(*shared_, layout, stop, collector).run();
}

double tokens_of_step(const Workload& w) {
  return static_cast<double>(w.global_batch_size) * static_cast<double>(w.seq_len);
}

}  // namespace sim
