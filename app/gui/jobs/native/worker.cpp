#include "app/gui/jobs/worker.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace app::gui {

struct Worker::State {
  std::function<void()> work;
  mutable std::mutex mutex;
  mutable std::condition_variable_any changed;
  bool asked = false, running = false;
  std::jthread thread;  // from the first call on

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (changed.wait(lock, stop, [this] { return asked; }) && !stop.stop_requested()) {
      asked = false;
      running = true;
      lock.unlock();
      work();
      lock.lock();
      running = false;
      changed.notify_all();
    }
  }
};

Worker::Worker(std::function<void()> work) : state_(std::make_unique<State>()) {
  state_->work = std::move(work);
}

Worker::~Worker() = default;

void Worker::wake() {
  const std::lock_guard lock(state_->mutex);
  state_->asked = true;
  if (!state_->thread.joinable())
    state_->thread = std::jthread([state = state_.get()](const std::stop_token& stop) { state->run(stop); });
  state_->changed.notify_all();
}

void Worker::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return !state_->asked && !state_->running; });
}

}  // namespace app::gui
