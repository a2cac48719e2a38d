// The desktop's prediction of a scenario, and of scenarios that differ in one choice.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/gui/step_view.h"
#include "sim/advise/fit.h"
#include "sim/byte_units.h"
#include "sim/cost/calibration.h"
#include "sim/plan/legality.h"
#include "sim/plan/memory.h"
#include "sim/report/report.h"
#include "sim/scenario/scenario.h"

namespace app::gui {

// What is live at the peak, one line a buffer.
struct LiveLine {
  std::string name;  // "layer.attention.probabilities"
  sim::BufferClass buffer_class{};
  sim::Bytes bytes;
  std::int64_t instances = 0;
};

// The scenario with one choice changed, which shows the effect of that choice.
struct Alternative {
  std::string field;        // the one it changes, as validate() calls it: "strategy.recompute"
  std::string label;        // "full recompute"
  std::string short_label;  // beside its field: "full"
  sim::Scenario scenario;
  sim::Report report;
};

struct Prediction {
  sim::Scenario scenario;
  std::vector<sim::Problem> problems = {};  // of the scenario; where there are any, nothing else is
  std::string failure = {};                 // why it could not be priced, empty if it could
  // Null where there are problems or a failure. For an inference engine: with the times of its profile.
  std::shared_ptr<const sim::Report> report = {};
  std::shared_ptr<const StepView> step = {};            // of training
  std::vector<sim::MemoryLine> first_step_ledger = {};  // of training, of the fullest stage
  std::vector<sim::FitChange> fixes = {};               // where it does not fit: best first
  std::vector<LiveLine> live_at_peak = {};
  std::vector<Alternative> alternatives = {};
  std::string calibration = {};     // "Intel Xeon, 2 threads, 2026-11-21"; empty: datasheet peaks alone
  double calibration_residual = 0;  // median, as a fraction of an operation's time
  std::optional<sim::Seconds> spent = {};  // on make_plan and predict
};

struct PredictionQuestion {
  sim::Scenario scenario;
  std::shared_ptr<const sim::Calibration> calibration;  // may be null
  int tab = 0;                                          // that asks
  sim::ByteUnits bytes = sim::byte_units();             // that its sentences are written in
  bool operator==(const PredictionQuestion&) const = default;
};

// `stale` is asked between alternatives; once it says yes the rest are left out.
Prediction make_prediction(const sim::Scenario& scenario, const sim::Calibration* calibration,
                           const std::function<bool()>& stale);

}  // namespace app::gui
