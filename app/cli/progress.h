// Shows progress on stderr: one line that is rewritten on a terminal, a line now and then elsewhere.
#pragma once
#include <chrono>
#include <string>

#include "sim/report/events.h"

namespace app::cli {

// Writes a message, or a part. A stderr that takes nothing (closed, full disk) does not end the run.
void to_stderr(const std::string& text);
// Whether stderr is a terminal that takes control sequences; NO_COLOR and TERM=dumb say no.
bool stderr_is_terminal();

class Progress {
 public:
  Progress();
  ~Progress();  // leaves the cursor on a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const sim::Event& event);
  // A line that stays.
  void note(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  void line(const std::string& text, bool keep);

  const bool terminal_;
  bool open_line_ = false;  // the cursor stands at the end of a line that will be rewritten
  std::int64_t planned_ = 0;
  sim::Seconds spent_;  // in steps so far
  std::int64_t steps_ = 0;
  Clock::time_point last_shown_;
};

}  // namespace app::cli
