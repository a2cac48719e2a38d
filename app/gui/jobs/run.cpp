#include "app/gui/jobs/run.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

#include "app/cli/scenario_flags.h"
#include "app/gui/jobs/run_command.h"
#include "runtime/model_source.h"
#include "sim/cost/predict.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

std::shared_ptr<const RunView> starting_view(sim::Task task) {
  auto view = std::make_shared<RunView>();
  view->phase = RunPhase::starting;
  view->task = task;
  return view;
}

// Null: the model comes without one.
std::optional<runtime::Tokenizer> tokenizer_of(const sim::Model& model) {
  try {
    return std::move(runtime::open_model(model.name).tokenizer);
  } catch (const std::exception&) {
    return std::nullopt;  // the run says what is the matter
  }
}

// The child may have measured this machine before it begins: its cache is read then, not now.
std::shared_ptr<const sim::Report> predict_here(const sim::Source& source) {
  try {
    auto calibration = cli::calibration_of_runs(source.scenario.hardware);
    if (calibration) calibration->slowdown = source.slowdown;
    return std::make_shared<const sim::Report>(
        sim::predict(source.scenario, calibration ? &*calibration : nullptr));
  } catch (const std::exception&) {
    return nullptr;  // measured all the same, with nothing beside it
  }
}

}  // namespace

Run::Run(std::vector<std::string> command, sim::Task task, PredictFor predict, std::function<void()> wake)
    : view_(starting_view(task)),
      state_(task, std::move(predict)),
      wake_(std::move(wake)),
      child_(
          std::move(command),
          [this](std::string_view line) {
            state_.line(line);
            publish(false);
          },
          [this] {
            if (unpublished_) publish(true);
          },
          [this](const ChildEnd& end) {
            {
              const std::lock_guard lock(mutex_);
              if (stopping_) state_.stopping();
            }
            state_.ended(end.exit_code, end.message);
            publish(true);
          }) {}

std::shared_ptr<const RunView> Run::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

void Run::cancel() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    auto stopping = std::make_shared<RunView>(*view_);
    stopping->phase = RunPhase::stopping;
    view_ = std::move(stopping);
  }
  child_.cancel();
}

void Run::publish(bool now) {
  const auto time = std::chrono::steady_clock::now();
  unpublished_ = true;
  if (!now && time - published_ < std::chrono::milliseconds(1000 / kViewsPerSecond)) return;
  published_ = time;
  unpublished_ = false;
  auto view = state_.view();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ && view->active()) {
      auto stopping = std::make_shared<RunView>(*view);
      stopping->phase = RunPhase::stopping;
      view = std::move(stopping);
    }
    view_ = std::move(view);
  }
  wake_();
}

sim::Scenario with_prompt_of(const RunChoices& choices, const sim::Scenario& scenario) {
  sim::Scenario next = scenario;
  if (scenario.workload.task != sim::Task::generate) return next;
  if (const auto tokenizer = tokenizer_of(scenario.model))
    next.workload.prompt_length =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(tokenizer->encode(choices.prompt, true).size()));
  return next;
}

std::vector<std::string> prompt_flags(const RunChoices& choices, const sim::Scenario& scenario) {
  if (tokenizer_of(scenario.model)) return {"--prompt", choices.prompt};
  std::string ids;
  for (std::int64_t i = 0; i < scenario.workload.prompt_length; ++i)
    ids.append(i > 0 ? "," : "").append(std::to_string(i % scenario.model.vocab_size));
  return {"--prompt-tokens", ids};
}

void Runs::start(const sim::Scenario& scenario) {
  const sim::Task task = scenario.workload.task;
  auto passed = std::make_unique<PassedFile>("scenario.json", sim::to_json(scenario));
  std::vector<std::string> command = run_command(executable_, passed->path(), scenario, choices);
  runs_[task] = std::make_unique<Run>(std::move(command), task, predict_here, wake_);
  passed_[task] = std::move(passed);
}

void Runs::play(const std::filesystem::path& recording, sim::Task task) {
  runs_[task] =
      std::make_unique<Run>(std::vector<std::string>{executable_, "replay", recording.string(), "--at-most",
                                                     std::to_string(kLongestReplay), "--stream"},
                            task, predict_here, wake_);
}

void Runs::stop() {
  for (const auto& [task, run] : runs_)
    if (!run->ended()) run->cancel();
}

bool Runs::active() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const auto& run) { return !run.second->ended(); });
}

void Runs::show(std::span<const sim::Event> events, const PredictFor& predict) {
  const auto* const begin = events.empty() ? nullptr : std::get_if<sim::BeginEvent>(&events.front());
  if (!begin) throw std::runtime_error("A run's events begin with \"begin\"; these do not.");
  const sim::Task task = begin->source.scenario.workload.task;
  RunState state(task, predict);
  state.replay(events);
  runs_.erase(task);
  shown_[task] = state.view();
  if (shown_[task]->measured) history_.add(shown_[task]->measured);
}

void Runs::poll() {
  for (const auto& [task, run] : runs_) {
    const std::shared_ptr<const RunView> before = std::exchange(shown_[task], run->view());
    const RunView& now = *shown_[task];
    if (before && before->active() && !now.active() && now.measured) history_.add(now.measured);
  }
}

const RunView& Runs::of(sim::Task task) const {
  static const RunView none;
  const auto found = shown_.find(task);
  return found == shown_.end() ? none : *found->second;
}

}  // namespace app::gui
