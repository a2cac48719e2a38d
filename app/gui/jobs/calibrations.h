// What prices operations on the hardware at hand: this machine's own measurement, which can be taken from
// here, and what ships of GPUs that others measured.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "app/gui/jobs/child_process.h"
#include "sim/cost/calibration.h"

namespace app::gui {

// A measurement of this machine's peaks, while it runs.
struct CalibrationView {
  bool running = false;
  std::int64_t done = 0, of = 0;
  sim::Seconds left;
  std::string message;  // why it failed
};

class Calibrations {
 public:
  // `executable` is this program. `wake` is called from other threads when there is something new to draw,
  // `say` with a sentence about a file that cannot be read.
  Calibrations(std::string executable, std::function<void()> wake, std::function<void(std::string)> say);
  ~Calibrations();

  // Of the hardware; null where there is none.
  std::shared_ptr<const sim::Calibration> of(const sim::Hardware& hardware);
  const sim::Calibration* this_machine() const { return here_.get(); }

  // Measures this machine, in a process of its own.
  void measure();
  // Takes over what is new: once a frame. True when a measurement has just ended.
  bool poll();
  const CalibrationView& view() const { return view_; }

 private:
  struct Progress;
  void take_over();

  std::string executable_;
  std::function<void()> wake_;
  std::function<void(std::string)> say_;
  std::shared_ptr<const sim::Calibration> here_;
  // By the hardware's name, as they were asked for; null where there is none.
  std::map<std::string, std::shared_ptr<const sim::Calibration>> shipped_;
  CalibrationView view_;
  std::shared_ptr<Progress> progress_;
  std::unique_ptr<ChildProcess> child_;  // last: its thread writes the progress
};

}  // namespace app::gui
