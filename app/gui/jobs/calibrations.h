// What prices operations on the hardware at hand: this machine's own measurement, which can be taken from
// here, and what ships of GPUs that others measured.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "app/gui/jobs/study.h"
#include "sim/cost/calibration.h"

namespace app::gui {

class Calibrations {
 public:
  // `executable` is this program. `say` is given a sentence about a file that cannot be read.
  Calibrations(Studies& studies, std::string executable, std::function<void(std::string)> say);

  // The hardware's calibration; null where there is none.
  std::shared_ptr<const sim::Calibration> of(const sim::Hardware& hardware);
  const sim::Calibration* this_machine() const { return here_.get(); }
  std::shared_ptr<const sim::Calibration> of_this_machine() const { return here_; }

  // Measures this machine, in a process of its own.
  void measure() { measuring_.ask(++measurements_); }
  const StudyProgress& progress() const { return measuring_.progress(); }
  // Once a frame. True when a measurement has just ended well: this machine is known by it from now on.
  bool take_over();

 private:
  void read_this_machine();

  std::function<void(std::string)> say_;
  Study<int, int>& measuring_;  // the how manieth measurement
  int measurements_ = 0, taken_over_ = 0;
  std::shared_ptr<const sim::Calibration> here_;
  // By the hardware's name, as they were asked for; null where there is none.
  std::map<std::string, std::shared_ptr<const sim::Calibration>> shipped_;
};

}  // namespace app::gui
