// What is run for real from this desktop, beside the window: the newest run of each task.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "app/gui/jobs/run.h"

namespace app::gui {

// What a run is asked for beside its scenario.
struct RunChoices {
  std::int64_t steps = 100;  // of training
  std::string prompt = "Once upon a time";
};

class Runs {
 public:
  // `executable` is this program; a run's scenario is written into `directory`, or where the system keeps
  // temporary files. `wake` is called from other threads when there is something new to draw.
  Runs(std::string executable, std::filesystem::path directory, std::function<void()> wake)
      : executable_(std::move(executable)), directory_(std::move(directory)), wake_(std::move(wake)) {}

  RunChoices choices;
  // Throws std::runtime_error where it cannot be started.
  void start(const sim::Scenario& scenario);
  void stop();
  bool active() const;
  // A report that was measured elsewhere, as if its run had just ended.
  void show(const sim::Report& report, const PredictFor& predict);

  // Takes over what is new: once a frame.
  void poll();
  // As of the last poll(); phase none: there was none.
  const RunView& of(sim::Task task) const;

 private:
  std::string executable_;
  std::filesystem::path directory_;
  std::function<void()> wake_;
  std::map<sim::Task, std::unique_ptr<Run>> runs_;
  std::map<sim::Task, std::shared_ptr<const RunView>> shown_;
};

}  // namespace app::gui
