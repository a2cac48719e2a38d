#include "app/gui/jobs/run.h"

#include <utility>

namespace app::gui {
namespace {

std::shared_ptr<const RunView> starting_view(sim::Task task) {
  auto view = std::make_shared<RunView>();
  view->phase = RunPhase::starting;
  view->task = task;
  return view;
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

}  // namespace app::gui
