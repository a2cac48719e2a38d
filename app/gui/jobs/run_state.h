// The state of a run: its events folded into a report, and what the panels draw of it. The reading thread
// folds; the window takes an immutable view at the start of a frame.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/jobs/series.h"
#include "sim/report/compare.h"
#include "sim/report/events.h"
#include "sim/report/report.h"

namespace app::gui {

enum class RunPhase { none, starting, running, stopping, ended, failed };

struct LogLine {
  enum class Kind { note, good, bad } kind = Kind::note;
  std::string text;
};

// When each rank's passes ran in a step.
struct RankTracks {
  std::int64_t step = 0;
  std::vector<std::vector<sim::TimelineSlot>> of_rank;
  sim::Seconds duration;  // until the last of them ended
};

// A step's operations on each rank.
struct RankOperations {
  std::int64_t step = 0;
  std::vector<sim::OperationTimeline> of_rank;
  sim::Seconds duration;  // of the step, with what the host does around its operations
};

struct RunView {
  RunPhase phase = RunPhase::none;
  sim::Task task = sim::Task::train;
  std::string title;                            // "gpt2-124m on Intel Xeon, 2 threads"
  std::shared_ptr<const sim::Report> measured;  // without its steps: those are the series below
  std::shared_ptr<const sim::Report> predicted;
  std::shared_ptr<const sim::Comparison> comparison;   // of the two, once rows have been measured
  Series loss, gradient_norm, tokens_per_second, mfu;  // over steps; of a generation over tokens (no loss)
  Series noise_scale;                                  // in sequences, where it is measured
  std::shared_ptr<const RankTracks> tracks;          // of the newest step that all ranks told of; null: none
  std::shared_ptr<const RankOperations> operations;  // the same
  std::shared_ptr<const std::vector<sim::StepMemoryEvent>> first_steps;  // of training; null: not told
  std::string text;                                                      // generated so far
  sim::Seconds time_to_first_token;                                      // 0: not yet
  std::int64_t done = 0, planned = 0;                                    // steps or tokens
  sim::Seconds left;                                                     // 0: not known
  std::string activity;  // what goes on before the first step: "calibrating"
  std::vector<LogLine> log;
  std::string message;  // how it ended if not well

  bool active() const {
    return phase == RunPhase::starting || phase == RunPhase::running || phase == RunPhase::stopping;
  }
};

// Predicts the scenario that a run's events name, on the machine that they name, at the machine's present
// speed.
using PredictFor = std::function<std::shared_ptr<const sim::Report>(const sim::Source&)>;

class RunState {
 public:
  RunState(sim::Task task, PredictFor predict);

  // A line of the stream. One that is not an event is a note in the log, never an exception.
  void line(std::string_view ndjson);
  void apply(const sim::Event& event);
  void stopping();
  void ended(int exit_code, const std::string& message);
  // All events of a run at once, which has ended.
  void replay(std::span<const sim::Event> events);

  std::shared_ptr<const RunView> view() const;

 private:
  void begin(const sim::Source& source, std::int64_t planned);
  // At its end, for the machine as it was meanwhile.
  void predict_again(const sim::Slowdown& meanwhile);
  void step(const sim::StepResult& step);
  void token(const sim::TokenResult& token);
  void rank_timeline(const sim::RankTimelineEvent& event);
  void operation_timeline(const sim::OperationTimelineEvent& event);
  void step_memory(const sim::StepMemoryEvent& event);
  void rows_changed() { rows_are_new_ = true; }
  void note(LogLine::Kind kind, std::string text);
  // The report, the comparison and the view's link to them are remade only when rows or memory changed.
  void refresh_report() const;

  PredictFor predict_;
  sim::Report report_;
  sim::Slowdown predicted_at_;
  mutable RunView view_;
  mutable bool rows_are_new_ = false;
  // Until all ranks have told, and how many have.
  RankTracks coming_;
  RankOperations coming_operations_;
  std::int32_t told_ranks_ = 0, told_operations_ = 0;
  double seconds_so_far_ = 0;
};

}  // namespace app::gui
