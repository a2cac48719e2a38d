// SIGINT, SIGTERM and SIGHUP as a request to stop, so that what was done until then is written. A second one
// ends the process at once.
#pragma once
#include <csignal>
#include <stop_token>
#include <thread>

namespace app::cli {

// While one lives, the signals are blocked in the thread that made it and in every thread started from there
// (so that the kernels' threads are never interrupted), and a thread of its own waits for them.
class InterruptSignals {
 public:
  InterruptSignals();
  ~InterruptSignals();
  InterruptSignals(const InterruptSignals&) = delete;
  InterruptSignals& operator=(const InterruptSignals&) = delete;

  std::stop_token stop() const { return stop_.get_token(); }
  bool arrived() const { return stop_.stop_requested(); }

 private:
  sigset_t signals_, previous_;
  std::stop_source stop_;
  std::jthread waiter_;
};

}  // namespace app::cli
