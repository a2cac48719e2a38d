#include "app/gui/jobs/worker.h"

#include <utility>

#include "app/gui/browser/between_frames.h"

namespace app::gui {

struct Worker::State {
  std::function<void()> work;
};

Worker::Worker(std::function<void()> work) : state_(std::make_unique<State>(std::move(work))) {}

Worker::~Worker() {
  forget_between_frames(this);
}

void Worker::wake() {
  call_between_frames(this, state_->work);
}

void Worker::wait() const {
  while (call_now(this)) {
  }
}

}  // namespace app::gui
