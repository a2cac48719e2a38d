// A program run beside the window: its standard output line by line, its end as a sentence. Nothing here
// blocks the thread that draws. A page of a browser has no processes: there the same program runs in a worker
// of the page's.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace app::gui {

struct ChildEnd {
  int exit_code = 0;  // 128 + signal where a signal ended it, as shells say it
  std::string
      message;  // empty when it ended well; else one sentence, with what it last wrote to standard error
};

class ChildProcess {
 public:
  using OnLine = std::function<void(std::string_view line)>;
  using OnPause = std::function<void()>;  // nothing came for a twentieth of a second
  using OnEnd = std::function<void(const ChildEnd& end)>;

  // Starts it. All functions are called from the reading thread, in a browser from the page's own between two
  // frames; `on_end` exactly once and last.
  ChildProcess(std::vector<std::string> command, OnLine on_line, OnPause on_pause, OnEnd on_end);
  // Kills what still runs, and waits for the reading thread.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // After Stop the user sees the end within half a second: a program in a long operation is killed. Its
  // output until then stays; rows that a generation writes at its end are lost.
  static constexpr std::chrono::milliseconds kGrace{400};
  // Asks it to end (SIGTERM), and ends it (SIGKILL) if it has not after that time. Returns at once.
  void cancel(std::chrono::milliseconds grace = kGrace);
  bool ended() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Waits for the end, on a thread that may wait: a study's. In a browser the command runs on the page's
// thread, which then stands still. When `stopped` says so, the program is asked to end and gets some seconds
// to keep its results; nothing is thrown. A failed program throws std::runtime_error with its message.
void run_to_end(std::vector<std::string> command, ChildProcess::OnLine on_line,
                const std::function<bool()>& stopped);

}  // namespace app::gui
