#include "app/cli/interrupt.h"

#include <unistd.h>

#include "app/cli/exit_code.h"

namespace app::cli {

InterruptSignals::InterruptSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  // The terminal went away, unless nohup had it ignored.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&signals_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
  waiter_ = std::jthread([this](const std::stop_token& ending) {
    for (;;) {
      int signal = 0;
      sigwait(&signals_, &signal);
      if (ending.stop_requested()) return;
      if (stop_.stop_requested()) _exit(static_cast<int>(ExitCode::interrupted));
      stop_.request_stop();
    }
  });
}

InterruptSignals::~InterruptSignals() {
  waiter_.request_stop();
  pthread_kill(waiter_.native_handle(), SIGTERM);  // wakes the waiter, which sees that it is to end
  waiter_.join();
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

}  // namespace app::cli
