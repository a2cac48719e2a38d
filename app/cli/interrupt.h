// Turns SIGINT, SIGTERM and SIGHUP into a request to stop, so that results so far are written. A second
// signal ends the process at once.
#pragma once
#include <csignal>
#include <stop_token>
#include <thread>

namespace app::cli {

// While an object lives, the signals are blocked in the thread that made it and in all threads started from
// there (so that the kernels' threads are never interrupted). A thread of the object waits for the signals.
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
