// A run in a child process and what is known of it so far.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/gui/jobs/child_process.h"
#include "app/gui/jobs/run_state.h"

namespace app::gui {

class Run {
 public:
  // `wake` is called from the reading thread when there is something new to draw, at most kViewsPerSecond
  // times.
  Run(std::vector<std::string> command, sim::Task task, PredictFor predict, std::function<void()> wake);

  std::shared_ptr<const RunView> view() const;
  void cancel();
  bool ended() const { return child_.ended(); }

 private:
  static constexpr int kViewsPerSecond = 30;
  void publish(bool now);

  mutable std::mutex mutex_;             // guards view_ and stopping_; held for a pointer's copy only
  std::shared_ptr<const RunView> view_;  // never null
  bool stopping_ = false;
  RunState state_;  // the reading thread's
  std::function<void()> wake_;
  std::chrono::steady_clock::time_point published_;
  bool unpublished_ = false;  // events came since
  ChildProcess child_;        // last: its thread uses all of the above
};

}  // namespace app::gui
