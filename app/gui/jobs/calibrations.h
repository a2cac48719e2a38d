// The calibrations that price operations on the hardware at hand: measured of this machine and its GPUs,
// here, by a run or by another process, or shipped for GPUs that others measured.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/gui/jobs/study.h"
#include "sim/cost/calibration.h"
#include "sim/cost/refit.h"

namespace app::gui {

class Calibrations {
 public:
  // `executable` is this program. `say` is given a sentence about a file that cannot be read.
  Calibrations(Studies& studies, std::string executable, std::function<void(std::string)> say);

  // The hardware's calibration as the command line takes it; null where there is none.
  std::shared_ptr<const sim::Calibration> of(const sim::Hardware& hardware);
  const sim::Calibration* this_machine() const { return here_.get(); }
  std::shared_ptr<const sim::Calibration> of_this_machine() const { return here_; }

  // The refit of a preset that is kept (runtime/gpu_calibration.h), until the files change.
  std::shared_ptr<const sim::Refit> refit_of(const std::string& hardware);
  // Keeps a refit, or forgets it; of() knows at the next frame.
  void keep(const sim::Refit& refit);
  void forget_refit(const std::string& hardware);

  // Measures this machine, in a process of its own. What was timed when it is stopped is kept for the next.
  void measure() { measuring_.ask(++measurements_); }
  void stop() { measuring_.cancel(); }
  bool is_begun() const { return is_begun_; }  // and was stopped
  const StudyProgress& progress() const { return measuring_.progress(); }
  // Once a frame, `now` seconds into the program's life. True when what is kept of this machine has changed:
  // it is known by that from now on.
  bool take_over(double now);

 private:
  void read_this_machine();

  std::function<void(std::string)> say_;
  Study<int, int>& measuring_;  // the how manieth measurement
  int measurements_ = 0;
  std::filesystem::file_time_type read_at_;         // of the files' last change, when they were read
  std::filesystem::file_time_type folder_at_ = {};  // of the folder's own, when its files were looked at
  double look_at_ = 0;                              // when they are, at the latest: seconds
  std::shared_ptr<const sim::Calibration> here_;
  bool is_begun_ = false;
  // As they were asked for; null where there is none.
  std::vector<std::pair<sim::Hardware, std::shared_ptr<const sim::Calibration>>> known_;
  std::map<std::string, std::shared_ptr<const sim::Refit>> refits_;
};

}  // namespace app::gui
