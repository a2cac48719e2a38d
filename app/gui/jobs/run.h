// Runs in child processes, beside the window, and the newest state of each task's run.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "app/gui/jobs/child_process.h"
#include "app/gui/jobs/passed_file.h"
#include "app/gui/jobs/run_history.h"
#include "app/gui/jobs/run_state.h"

namespace app::gui {

class Run {
 public:
  // `wake` is called from the reading thread when there is something new to draw, at most kViewsPerSecond
  // times.
  Run(std::vector<std::string> command, sim::Task task, PredictFor predict, std::function<void()> wake);

  std::shared_ptr<const RunView> view() const;
  void cancel();
  // Whether the run has ended and view() shows its end.
  bool ended() const { return !view()->active(); }

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

// Where a run is, and the type that it computes in.
struct RunPlace {
  std::string device = "cpu";  // as --device takes it
  sim::DType dtype = sim::DType::fp32;
  std::string name = "CPU";  // the device's
  bool is_gpu() const { return device != "cpu"; }
  bool operator==(const RunPlace&) const = default;
};

// What a run is asked for beside its scenario.
struct RunChoices {
  RunPlace place;
  std::int64_t steps = 100;                 // of training
  std::string prompt = "Once upon a time";  // of a model that comes with a tokenizer
};

// The scenario with a prompt as long as the words in its model's tokens, like the run's; unchanged where
// nothing is generated, or where the model comes without a tokenizer.
sim::Scenario with_prompt_of(const RunChoices& choices, const sim::Scenario& scenario);
// What `ridgepoint generate` is given: the words, or without a tokenizer as many ids as the prompt is long.
std::vector<std::string> prompt_flags(const RunChoices& choices, const sim::Scenario& scenario);

class Runs {
 public:
  static constexpr int kLongestReplay = 20;  // seconds
  // `executable` is this program; runs are kept below `directory`, or nowhere where it is empty. `wake` is
  // called from other threads when there is something new to draw.
  Runs(std::string executable, const std::filesystem::path& directory, std::function<void()> wake)
      : executable_(std::move(executable)),
        wake_(std::move(wake)),
        history_(directory.empty() ? directory : directory / "runs") {}

  RunChoices choices;
  // Throws std::runtime_error where it cannot be started.
  void start(const sim::Scenario& scenario);
  // Plays a recording as if it ran now, at its own pace or in kLongestReplay: the child writes its events.
  void play(const std::filesystem::path& recording, sim::Task task);
  void stop();
  bool active() const;
  // The events of a run elsewhere, as if it had just ended. Throws std::runtime_error where they do not begin
  // with its beginning.
  void show(std::span<const sim::Event> events, const PredictFor& predict);

  // Takes over what is new: once a frame.
  void poll();
  // The runs that ended with something measured.
  const std::vector<std::shared_ptr<const sim::Report>>& history() const { return history_.all(); }
  const std::string& history_failure() const { return history_.failure(); }
  // The task's run as of the last poll(); its phase is none where there was no run.
  const RunView& of(sim::Task task) const;

 private:
  std::string executable_;
  std::function<void()> wake_;
  std::map<sim::Task, std::unique_ptr<PassedFile>> passed_;  // the scenarios of runs_
  std::map<sim::Task, std::unique_ptr<Run>> runs_;
  std::map<sim::Task, std::shared_ptr<const RunView>> shown_;
  RunHistory history_;
};

}  // namespace app::gui
