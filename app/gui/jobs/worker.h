// Does a study's work: on a thread of its own; in a browser page, which has no threads, between two
// frames.
#pragma once
#include <functional>
#include <memory>

namespace app::gui {

class Worker {
 public:
  // `work` does what there is to do at the time; no two calls of it run at once.
  explicit Worker(std::function<void()> work);
  // Waits for a call that runs; one that was asked for and has not begun is left out.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // A call of `work` begins after this, if it is not about to already. Returns at once.
  void wake();
  // Waits until no call runs or is about to.
  void wait() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace app::gui
