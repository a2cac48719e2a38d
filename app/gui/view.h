// State of the view that panels share, and what panels are given and ask for. Other state of a panel is its
// own (panels/panels.h).
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/jobs/outlook.h"
#include "app/gui/jobs/run.h"
#include "app/gui/jobs/start_places.h"
#include "app/gui/jobs/study.h"
#include "app/gui/pins.h"
#include "app/gui/predictor.h"
#include "app/gui/theme.h"
#include "sim/report/metrics.h"
#include "sim/scenario/scenario.h"

namespace app::gui {

// The number that the Explain panel explains.
enum class Quantity {
  step_time,
  tokens_per_second,
  utilization,
  parameters,
  memory,
  memory_category,
  operation
};

struct Selection {
  Quantity quantity = Quantity::step_time;
  int category = 0;       // of memory_category
  std::string operation;  // "forward layer.attention.qkv.forward": phase and id
};

struct View {
  Selection selection;
  std::string explained_line;          // that Explain shows
  std::string hovered_operation;       // linked over panels, for one frame
  std::string maximised;               // a panel's id; empty: all of them, docked
  std::string used_last = "overview";  // the id of the panel that had the keyboard last
  sim::FlopsConvention convention = sim::FlopsConvention::six_n_causal;
  // The room in points that panels want for what they show, by panel id.
  std::map<std::string, ImVec2> room;
  bool still = false;                // reduced motion: no picture goes of itself
  bool moves = false;                // a picture goes of itself: another frame is wanted soon
  std::optional<double> changes_in;  // seconds until something that a panel shows goes, if it will
  // To be opened in this frame.
  bool palette_asked = false, shortcuts_asked = false, settings_asked = false;
  std::string palette_query;
  int palette_index = 0;
};

struct Edit {
  std::string label;  // "layers 32 -> 33"
  sim::Scenario scenario;
  std::string key;     // edits of one key in one gesture are one undo step
  bool whole = false;  // a scenario of its own: nothing follows the edit
};

// What is to be done with a pin; add: of this report.
struct PinRequest {
  enum class Kind { add, remove, baseline, swap } kind{};
  std::size_t pin = 0;
  std::shared_ptr<const sim::Report> report = nullptr;
};

// What panels want done once the frame is drawn.
struct Requests {
  std::vector<Edit> edits;
  std::vector<std::string> commands;  // ids
  std::vector<PinRequest> pins = {};
};

struct PanelContext {
  const Look& look;
  const sim::Scenario& scenario;
  std::shared_ptr<const sim::Calibration> calibration;  // of the scenario's hardware; null: there is none
  // Perhaps of the scenario of a moment ago; of the last that could be, where this one cannot.
  const Prediction& prediction;
  std::string_view disagreement;   // why this one cannot, in the labels of Configure; empty: it can
  const Outlook* outlook;          // of Start; null: not known yet
  const StudyProgress& measuring;  // of this machine
  Runs& runs;
  const StartPlaces& places;
  const StudyProgress& looking_for_places;
  const Pins& pins;
  bool frozen;  // a picture: nothing that changes from one drawing to the next
  View& view;
  Requests& requests;

  const RunView& run() const { return runs.of(scenario.workload.task); }
  // What the run measured, where it was of this scenario.
  const sim::Report* measured() const {
    const sim::Report* report = run().measured.get();
    return report && report->source.scenario == scenario ? report : nullptr;
  }
  void edit(std::string label, sim::Scenario next, std::string key = {}) const {
    requests.edits.push_back({std::move(label), std::move(next), std::move(key)});
  }
  void load(std::string label, sim::Scenario whole) const {
    requests.edits.push_back({std::move(label), std::move(whole), {}, true});
  }
  void invoke(std::string id) const { requests.commands.push_back(std::move(id)); }
};

}  // namespace app::gui
