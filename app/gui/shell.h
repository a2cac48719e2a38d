// The desktop without a window system: state, one frame of interface, and what its commands do. The window,
// the pictures and the tests each drive it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "app/gui/command_line.h"
#include "app/gui/commands.h"
#include "app/gui/desktop.h"
#include "app/gui/document.h"
#include "app/gui/jobs/latest_answer.h"
#include "app/gui/jobs/run.h"
#include "app/gui/jobs/validation_job.h"
#include "app/gui/predictor.h"
#include "app/gui/settings.h"
#include "app/gui/view.h"
#include "sim/cost/calibration.h"

namespace app::gui {

struct Panel;

class Shell {
 public:
  // Needs an ImGui and an ImPlot context. `wake` is called from other threads when there is something new to
  // draw. `frozen`: nothing in the frame depends on the clock, for pictures.
  Shell(const DesktopOptions& options, Settings settings, std::function<void()> wake, bool frozen);
  ~Shell();

  // Before ImGui::NewFrame: takes over theme and scale where they changed.
  void prepare();
  // Between ImGui::NewFrame and ImGui::Render.
  void frame();
  bool wants_close() const { return wants_close_; }
  // Seconds until what is on screen changes of itself, if it will.
  std::optional<double> changes_in() const;
  std::size_t frames_drawn() const { return frames_drawn_; }

  // As if its run had just ended.
  void show_measured(const sim::Report& report);
  void wait_for_prediction() const { predictor_.wait(); }
  // A table of measurements for the validation panel; those of presets/published come first.
  void open_table(const std::filesystem::path& file);
  void wait_for_tables() const;
  // What panels that are seen have asked for.
  void wait_for_studies() const;
  // The display's own scale, which multiplies the user's.
  void set_display_scale(float scale);

  Document& document() { return document_; }
  Commands& commands() { return commands_; }
  View& view() { return view_; }
  const Look& look() const { return look_; }
  bool is_open(const std::string& panel) const { return !closed_.count(panel); }
  bool run_active() const;
  const InferenceStudy* inference() const { return shown_inference_.get(); }
  const PlannerView* planner() const { return shown_plan_.get(); }
  const ServingPlan* serving_plan() const { return shown_serving_plan_.get(); }
  Settings settings() const;

 private:
  void register_commands();
  void register_panel_commands();
  void register_preset_commands();
  PanelContext context(Requests& requests) const;
  void carry_out(Requests& requests);
  void refresh_prediction();
  // Of this machine, or of a GPU that others measured; null where there is none.
  std::shared_ptr<const sim::Calibration> calibration_for(const sim::Hardware& hardware);
  void ask_for_studies(const Requests& requests);
  void start_run();
  void start_validation();
  void start_search();
  void calibrate();
  void take_over_calibration();

  void draw_host(const PanelContext& context);
  void draw_panel(const Panel& panel, const PanelContext& context);
  void draw_panel_body(const Panel& panel, const PanelContext& context, bool with_title, bool with_caption);
  void draw_maximised(const Panel& panel, const PanelContext& context);
  void draw_top_bar(const PanelContext& context);
  void draw_menu();
  void draw_status_bar(const PanelContext& context);
  void draw_toast() const;

  void toast(std::string words);

  std::string executable_;
  std::filesystem::path settings_directory_;
  std::function<void()> wake_;
  bool frozen_ = false, wants_close_ = false, style_is_old_ = true, layout_is_old_ = true;
  Look look_;
  float user_scale_ = 1, display_scale_ = 1;
  std::size_t frames_drawn_ = 0;

  Document document_;
  Commands commands_;
  View view_;
  std::set<std::string> closed_;                         // panels
  std::shared_ptr<const sim::Calibration> calibration_;  // of this machine
  // By the hardware's name, as they were asked for; null where there is none.
  std::map<std::string, std::shared_ptr<const sim::Calibration>> shipped_calibrations_;
  Predictor predictor_;
  std::size_t predicted_revision_ = 0;
  bool prediction_asked_ = false;
  std::shared_ptr<const Prediction> prediction_;  // of this frame
  std::map<sim::Task, std::shared_ptr<const RunView>> replayed_;
  std::map<sim::Task, std::shared_ptr<const RunView>> shown_runs_;  // of this frame
  std::map<sim::Task, std::unique_ptr<Run>> runs_;
  std::unique_ptr<ValidationJob> validation_;               // null until the panel is first seen
  std::shared_ptr<const ValidationView> shown_validation_;  // of this frame
  // Null until its panel is first seen.
  std::unique_ptr<LatestAnswer<InferenceQuestion, InferenceStudy>> inference_;
  std::shared_ptr<const InferenceStudy> shown_inference_;     // of this frame
  std::pair<std::size_t, InferenceChoices> asked_inference_;  // revision, choices
  std::unique_ptr<LatestAnswer<EconomicsQuestion, EconomicsStudy>> economics_;
  std::shared_ptr<const EconomicsStudy> shown_economics_;
  std::size_t asked_economics_ = 0;      // revision
  std::unique_ptr<PlannerJob> planner_;  // null until the first search
  std::shared_ptr<const PlannerView> shown_plan_;
  std::shared_ptr<const PlannerComparison> shown_comparison_;
  std::unique_ptr<LatestAnswer<ServingPlanQuestion, ServingPlan>> serving_plan_;
  std::shared_ptr<const ServingPlan> shown_serving_plan_;
  std::pair<std::size_t, ServingPlanChoices> asked_serving_plan_;  // revision, choices
  std::unique_ptr<ChildProcess> calibration_run_;
  struct CalibrationProgress;
  std::shared_ptr<CalibrationProgress> calibration_progress_;
};

}  // namespace app::gui
