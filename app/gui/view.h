// What the user looks at and what panels ask for: everything of the interface that is neither scenario nor
// result.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/gui/jobs/economics_study.h"
#include "app/gui/jobs/inference_study.h"
#include "app/gui/jobs/planner_job.h"
#include "app/gui/jobs/run_state.h"
#include "app/gui/jobs/serving_plan.h"
#include "app/gui/jobs/validation_job.h"
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

// A measurement of this machine's peaks, while it runs.
struct CalibrationView {
  bool running = false;
  std::int64_t done = 0, of = 0;
  sim::Seconds left;
  std::string message;  // why it failed
};

enum class MemoryTab { ledger, timeline, peak };

enum class PipelineColoring { phase, micro_batch };

// What the pipeline panel shows of a step.
struct PipelineScope {
  PipelineColoring coloring = PipelineColoring::phase;
  double duration = 0;        // seconds, of the step that the rest is about
  double begin = 0, end = 0;  // of the time in view
  double cursor = 0;          // the moment that is read off
  int stage = 0;              // the one whose memory is taken apart
};

// What the communication panel shows: one kind of message in one group.
struct CommunicationScope {
  int stage = 0;             // whose traffic
  std::string group, kind;   // names; empty: those that take longest
  int rank = 0;              // whose group is coloured
  bool shows_curve = false;  // where there is room for the curve or the map alone
};

// What the validation panel shows of the tables.
struct ValidationScope {
  std::string path;                // of the file to open
  std::string table, column;       // names; empty: the first
  std::string source, gpu;         // shown alone; empty: all
  std::optional<std::size_t> row;  // whose facts are shown
  std::string framed;              // the choice of points that the axes were fitted to
  int tab = 0;                     // where there is room for one part alone
};

// What the inference panel shows.
struct InferenceScope {
  InferenceChoices choices;
  double acceptance = 0.7;  // of a draft's tokens
  int tab = 0;              // where there is room for one part alone
};

// What the economics panel reckons with; 0 and "" leave it to the dated rates, or to what suits the scenario.
struct EconomicsScope {
  double tokens = 0;  // of the run
  std::string site;
  double usd_per_hour = 0, pue = 0, kg_co2e_per_kwh = 0;
  double checkpoint_s = 0;      // that training waits for one to be written
  double critical_batch = 0;    // tokens
  double served_tokens = 1e12;  // over the model's life
  bool hoffmann = false;        // the first fit of the scaling law, in place of the second
  sim::QualityMeasure quality = sim::QualityMeasure::commonsense;
  int tab = 0;  // where there is room for one part alone
};

// What the planner panel asks for and shows.
struct PlannerScope {
  PlannerChoices choices;
  sim::Objective x = sim::Objective::time, y = sim::Objective::memory;  // of the scatter
  sim::Objective objective = sim::Objective::time;                      // that the table is sorted by
  std::array<std::optional<std::int64_t>, 2> picks;                     // candidates
  ServingPlanChoices serving;                                           // where the task is generation
  int tab = 0;  // where there is room for one part alone
};

// A value that a field could not take, until the next edit.
struct Refusal {
  std::string field, message;
};

struct View {
  Selection selection;
  std::string hovered_operation;  // linked over panels, for one frame
  std::string maximised;          // a panel's id; empty: all of them, docked
  sim::FlopsConvention convention = sim::FlopsConvention::six_n_causal;
  std::set<std::string> folded = {"model"};  // sections of Configure
  std::set<std::string> unfolded;            // those whose rare fields are shown
  Refusal refusal;
  MemoryTab memory_tab = MemoryTab::ledger;
  PipelineScope pipeline;
  CommunicationScope communication;
  ValidationScope validation;
  InferenceScope inference;
  EconomicsScope economics;
  PlannerScope planner;
  std::string compare_filter;
  std::int64_t train_steps = 100;
  std::string prompt = "Once upon a time";
  bool palette_open = false, shortcuts_open = false;
  std::string palette_query;
  int palette_index = 0;
  CalibrationView calibration;
  std::string toast;  // "Copied", until toast_until
  double toast_until = 0;
};

struct Edit {
  std::string label;  // "layers 32 -> 33"
  sim::Scenario scenario;
  std::string key;  // edits of one key in one gesture are one undo step
};

// What panels want done once the frame is drawn.
struct Requests {
  std::vector<Edit> edits;
  std::vector<std::string> commands;  // ids
  // What is shown of studies is wanted.
  std::optional<InferenceChoices> inference;
  bool economics = false;
  std::optional<std::array<std::int64_t, 2>> planner_picks;
  std::optional<ServingPlanChoices> serving_plan;
};

struct PanelContext {
  const Look& look;
  const sim::Scenario& scenario;
  const Prediction& prediction;  // perhaps of the scenario of a moment ago
  const RunView& train;          // newest of its kind; phase none: there was none
  const RunView& generate;
  const ValidationView* validation;  // null until "validation.start"
  const InferenceStudy* inference;   // null until the panel was seen; perhaps of a moment ago
  const EconomicsStudy* economics;   // the same
  const PlannerView* planner;        // null until "planner.search"
  const PlannerComparison* comparison;
  const ServingPlan* serving_plan;  // as inference
  bool calibrated;                  // this machine's peaks have been measured
  bool run_active;
  bool frozen;  // a picture: nothing that changes from one drawing to the next
  View& view;
  Requests& requests;

  const RunView& run() const { return scenario.workload.task == sim::Task::train ? train : generate; }
  void edit(std::string label, sim::Scenario next, std::string key = {}) const {
    requests.edits.push_back({std::move(label), std::move(next), std::move(key)});
  }
  void invoke(std::string id) const { requests.commands.push_back(std::move(id)); }
};

}  // namespace app::gui
