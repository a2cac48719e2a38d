#include "app/gui/jobs/planner_job.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "app/gui/jobs/serving_plan.h"

namespace app::gui {
namespace {

PlannerComparison compared(const PlannerView& view, const std::array<std::int64_t, 2>& picks) {
  PlannerComparison comparison{.picks = picks, .explanation = {}, .failure = {}};
  try {
    comparison.explanation =
        sim::explain({sim::candidate(view.space, picks[0]), sim::candidate(view.space, picks[1])},
                     view.question.calibration.get());
  } catch (const std::exception& problem) {
    comparison.failure = problem.what();
  }
  return comparison;
}

}  // namespace

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

PlannerJob::PlannerJob(std::function<void()> wake)
    : wake_(wake),
      comparisons_([](const ComparisonQuestion& question,
                      const auto&) { return compared(*question.view, question.picks); },
                   wake),
      worker_([this](const std::stop_token& stop) { work(stop); }) {}

PlannerJob::~PlannerJob() {
  worker_.request_stop();
  cancel();
  changed_.notify_all();
}

void PlannerJob::start(PlannerQuestion question) {
  {
    const std::lock_guard lock(mutex_);
    running_.request_stop();
    waiting_ = std::move(question);
  }
  changed_.notify_all();
}

void PlannerJob::cancel() {
  const std::lock_guard lock(mutex_);
  running_.request_stop();
  waiting_.reset();
}

std::shared_ptr<const PlannerView> PlannerJob::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

void PlannerJob::compare(const std::array<std::int64_t, 2>& picks) {
  const auto now = view();
  if (!now) return;
  // A search that goes on has the same space: its candidates are the same.
  if (compared_ && compared_->picks == picks && compared_->view->space == now->space) return;
  compared_ = {picks, now};
  comparisons_.ask(*compared_);
}

void PlannerJob::wait() const {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !waiting_ && !busy_; });
  }
  comparisons_.wait();
}

void PlannerJob::publish(PlannerView view) {
  {
    const std::lock_guard lock(mutex_);
    view_ = std::make_shared<const PlannerView>(std::move(view));
  }
  wake_();
}

void PlannerJob::search(const PlannerQuestion& question, const std::stop_token& stop) {
  PlannerView view{.question = question, .space = {}, .tariff = {}, .result = {}, .failure = {}};
  try {
    view.space = space_of(question);
    view.tariff = tariff_of(question.scenario.hardware);
    view.total = sim::size(view.space);
    view.running = true;
    publish(view);
    sim::SearchOptions options;
    options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    options.stop = stop;
    options.on_progress = [&](const sim::SearchResult& so_far, std::int64_t done, std::int64_t) {
      view.result = so_far;
      view.done = done;
      publish(view);
    };
    view.result = sim::search(view.space, constraints_of(question.choices), view.tariff,
                              question.calibration.get(), options);
    view.done = view.result.looked_at;
  } catch (const std::exception& problem) {
    view.failure = problem.what();
  }
  view.running = false;
  view.stopped = stop.stop_requested();
  publish(std::move(view));
}

void PlannerJob::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return waiting_.has_value(); })) {
    const PlannerQuestion question = std::move(*waiting_);
    waiting_.reset();
    running_ = std::stop_source();
    const std::stop_token token = running_.get_token();
    busy_ = true;
    lock.unlock();
    search(question, token);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace app::gui
