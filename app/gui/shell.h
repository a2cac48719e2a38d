// The desktop without a window system: state, one frame of interface, and what its commands do. The window,
// the pictures and the tests each drive it. What single panels do is theirs (panels/panels.h).
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "app/gui/commands.h"
#include "app/gui/desktop.h"
#include "app/gui/document.h"
#include "app/gui/figures/export.h"
#include "app/gui/jobs/calibrations.h"
#include "app/gui/jobs/picture.h"
#include "app/gui/jobs/run.h"
#include "app/gui/jobs/study.h"
#include "app/gui/palette_window.h"
#include "app/gui/panel_windows.h"
#include "app/gui/predictor.h"
#include "app/gui/presenter_screen.h"
#include "app/gui/settings.h"
#include "app/gui/settings_window.h"
#include "app/gui/tabs.h"
#include "app/gui/view.h"
#include "app/gui/welcome.h"

namespace app::gui {

class Shell {
 public:
  // Needs an ImGui and an ImPlot context. `wake` is called from other threads when there is something new to
  // draw. `frozen`: nothing in the frame depends on the clock, for pictures.
  Shell(const DesktopOptions& options, Settings settings, const std::function<void()>& wake, bool frozen);

  // Call before ImGui::NewFrame: it takes over theme and scale where they changed.
  void prepare();
  // Call between ImGui::NewFrame and ImGui::Render.
  void frame();
  bool wants_close() const { return wants_close_; }
  // Seconds until what is on screen changes of itself, if it will.
  std::optional<double> changes_in() const;
  // Opens the welcome of the first start.
  void welcome() { welcome_.open(); }
  std::size_t frames_drawn() const { return frames_drawn_; }

  // As if its run had just ended.
  void show_measured(const sim::Report& report) { show_measured(sim::events_of(report)); }
  void show_measured(std::span<const sim::Event> events);
  // A scenario or a model becomes the document's, a report is shown as a run, and other files go to the panel
  // that takes them: tables of measurements.
  void open(const std::filesystem::path& file);
  // A panel's content as a file of this format; `panel` "" stands for all panels. Throws runtime::InputError
  // where it shows nothing that can be written.
  std::string exported(std::string_view panel, ExportFormat format);
  // The same as data; "" stands for all panels that have any.
  std::vector<PanelFigures> figures(std::string_view panel);
  void wait_for_prediction() const { prediction_.wait(); }
  // Waits for what visible panels have asked for.
  void wait_for_studies() const { studies_.wait(); }
  // The display's own scale, which multiplies the user's.
  void set_display_scale(float scale);

  // The document of the tab that is shown.
  Document& document() { return tabs_.current().document; }
  const Document& document() const { return tabs_.current().document; }
  Commands& commands() { return commands_; }
  View& view() { return view_; }
  Runs& runs() { return runs_; }
  const StartPlaces& places() const { return known_places_; }
  Pins& pins() { return tabs_.current().pins; }
  const Tabs& tabs() const { return tabs_; }
  const PanelWindows& panels() const { return panels_; }
  const Look& look() const { return look_; }
  Settings settings() const;
  // Grows with every change of what a session keeps.
  std::size_t revision() const { return tabs_.revision() + commands_.revision() + lectures_revision_; }

 private:
  void add_document_commands();
  void add_tab_commands();
  void add_run_commands();
  void add_view_commands();
  void add_scenario_commands();
  void add_preset_commands();
  void add_export_commands();
  void add_pin_commands();
  void add_presenter_commands();
  void add_field_commands();
  // The file is the first of the recent ones, in the menu File.
  void remember(const std::filesystem::path& file);
  void list_recent_files();
  // Without paths, which are nobody else's business.
  std::string bug_report() const;
  bool presents() const { return presentation_.has_value(); }
  void begin_presentation();
  // Back to the desktop as it was.
  void end_presentation();
  // Where its lecture was left; where it was left on another panel than is shown, there if asked.
  void go_on_with_lecture(bool on_its_panel);
  void begin_lecture_anew();
  // Once a frame: notes what is presented, where the lecture goes on the next time.
  void follow_lecture();
  void keep_place_of_lecture();
  void say_where_lecture_goes_on();
  void pin(std::shared_ptr<const sim::Report> report);
  void carry_out(const PinRequest& request);
  // What is configured becomes the pin's, and the pin's scenario is configured.
  void swap_with(std::size_t pin);
  // The panel that exports are of: the maximised one, else the one that was used last.
  const PanelEntry& exported_panel() const;
  void export_to(const std::string& file, std::string_view panel, ExportFormat format);
  void ask_picture(double scale);
  void tell_of_picture();
  // Opens it in a new tab; in the current one where there is no room or nothing is lost.
  void open_in_tab(const std::string& label, sim::Scenario scenario, const std::filesystem::path& file);
  void tab_changed();
  void restore(const std::vector<SavedTab>& saved, std::size_t shown);
  Tab restored(const SavedTab& saved);
  std::vector<SavedTab> kept_tabs() const;
  sim::Scenario as_of_now(sim::Scenario scenario) const;
  // Gives scenarios on this machine its latest measurement. False where nothing changed.
  bool follow_this_machine();
  void follow_document();
  PanelContext context(const Look& look, Requests& requests, const sim::Scenario& scenario);
  // One undo step; the batch follows what it is divided over. `whole`: a scenario of its own, as it is.
  void edit(std::string label, sim::Scenario next, std::string_view key = {}, bool whole = false);
  void take_over_prediction();
  // The prediction of the tab that is shown; null while there is none.
  std::shared_ptr<const sim::Report> predicted() const;
  // For the scenario at hand; null while it is not known.
  const Outlook* outlook() const;
  void carry_out(Requests& requests);
  // Devices and recordings that were found stand as commands.
  void take_over_places();
  void list_places();
  void play(const Recording& recording);
  void draw_welcome();
  void draw_host(const PanelContext& context);

  bool frozen_ = false, wants_close_ = false, style_is_old_ = true;
  Look look_;
  float user_scale_ = 1, display_scale_ = 1;
  std::vector<std::filesystem::path> recent_files_;  // the newest first
  struct Presentation {
    float scale_before = 1;          // of the interface
    float scale = 1;                 // that it begins with
    std::string lecture = {};        // the lesson that is open; empty: none
    std::string begun_on = {};       // the panel
    std::string panel_to_come = {};  // once the lesson's step has its scenario
  };
  std::optional<Presentation> presentation_;  // none: the presenter's mode is not on
  PresenterScreen presenter_screen_;
  Lectures lectures_;
  std::size_t lectures_revision_ = 0;
  std::string left_on_;  // the panel that was used last when the desktop began, or nobody presented any more
  std::size_t frames_drawn_ = 0;

  Tabs tabs_;
  Commands commands_;
  View view_;
  Toast toast_;
  Studies studies_;
  Calibrations calibrations_;
  Runs runs_;
  Study<PredictionQuestion, Prediction>& prediction_;
  Study<StartQuestion, Outlook>& outlook_;
  Study<PlacesQuestion, StartPlaces>& places_;
  const StartPlaces* seen_places_ = nullptr;  // of the study, when it was last looked at
  // Until the study says more: the CPU, which every machine has.
  StartPlaces known_places_{{{"cpu", "CPU", {sim::DType::fp32, sim::DType::bf16}, {}}}, {}};
  int looked_for_places_ = 0;
  PictureStudy& picture_;
  bool picture_awaited_ = false;
  Welcome welcome_;
  SettingsWindow settings_window_;
  std::string executable_;
  Prediction unpredicted_;            // until the first one is there
  const Prediction* seen_ = nullptr;  // of the study, when it was last looked at
  std::string disagreement_;
  sim::Scenario first_;  // of a new document
  PanelWindows panels_;
};

}  // namespace app::gui
