#include "app/gui/jobs/planner_study.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "app/gui/jobs/serving_plan.h"
#include "sim/planner/explain.h"

namespace app::gui {

sim::SearchSpace space_of(const PlannerQuestion& question) {
  const PlannerChoices& choices = question.choices;
  std::vector<int> devices = {static_cast<int>(
      choices.devices > 0 ? choices.devices : std::int64_t{question.scenario.strategy.devices()})};
  constexpr std::size_t kFewest = 6;
  while (choices.fewer && devices.back() % 2 == 0 && devices.back() > 1 && devices.size() < kFewest)
    devices.push_back(devices.back() / 2);
  sim::SearchSpace space = sim::every_strategy(question.scenario, devices);
  const sim::SearchSpace now = sim::space_of(question.scenario);
  if (!choices.tensor) {
    space.tensor_parallel = now.tensor_parallel;
    space.sequence_parallel = now.sequence_parallel;
  }
  if (!choices.pipeline) {
    space.pipeline_parallel = now.pipeline_parallel;
    space.schedule = now.schedule;
    space.virtual_pipeline = now.virtual_pipeline;
  }
  if (!choices.context) space.context_parallel = now.context_parallel;
  if (!choices.experts) {
    space.expert_parallel = now.expert_parallel;
    space.expert_tensor_parallel = now.expert_tensor_parallel;
  }
  if (!choices.sharding) {
    space.zero_stage = now.zero_stage;
    space.shard_group = now.shard_group;
  }
  if (!choices.recompute) space.recompute = now.recompute;
  if (!choices.micro_batch) space.micro_batch_size = now.micro_batch_size;
  if (!choices.offload) space.offload_optimizer = now.offload_optimizer;
  return space;
}

sim::Constraints constraints_of(const PlannerChoices& choices) {
  sim::Constraints constraints;
  constraints.memory_share = choices.memory_share;
  if (choices.slowest_step_s > 0) constraints.slowest_step = sim::Seconds{choices.slowest_step_s};
  hold_to(constraints, choices.limits);
  return constraints;
}

PlannerView search_strategies(const PlannerQuestion& question, const PlannerStudy::Course& course) {
  PlannerView view{
      .space = space_of(question), .tariff = tariff_of(question.scenario.hardware), .result = {}};
  course.report(0, sim::size(view.space), "");
  course.show(view);
  sim::SearchOptions options;
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  options.stop = course.token;
  options.on_progress = [&](const sim::SearchResult& so_far, std::int64_t done, std::int64_t total) {
    view.result = so_far;
    course.report(done, total, "");
    course.show(view);
  };
  view.result = sim::search(view.space, constraints_of(question.choices), view.tariff,
                            question.calibration.get(), options);
  course.report(view.result.looked_at, sim::size(view.space), "");
  return view;
}

sim::Explanation explain_picks(const PicksQuestion& question) {
  return sim::explain(
      {sim::candidate(question.space, question.picks[0]), sim::candidate(question.space, question.picks[1])},
      question.calibration.get());
}

}  // namespace app::gui
