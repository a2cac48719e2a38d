#include "app/gui/shell.h"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>

#include "app/cli/scenario_flags.h"
#include "app/gui/bars.h"
#include "app/gui/legal.h"
#include "app/gui/opened_file.h"
#include "app/gui/panels/lessons.h"
#include "app/gui/panels/sweep.h"
#include "sim/cost/predict.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr float kMargin = 8;  // points

}  // namespace

Shell::Shell(const DesktopOptions& options, Settings settings, const std::function<void()>& wake, bool frozen)
    : frozen_(frozen),
      user_scale_(settings.scale),
      tabs_({Document(options.scenario)}),
      studies_(wake),
      calibrations_(studies_, options.executable,
                    [this](std::string words) { toast_.say(std::move(words)); }),
      runs_(options.executable, options.settings_directory, wake),
      prediction_(studies_.add<PredictionQuestion, Prediction>(
          [](const PredictionQuestion& question, const auto& course) {
            return make_prediction(question.scenario, question.calibration.get(),
                                   [&] { return course.stopped(); });
          })),
      outlook_(studies_.add<StartQuestion, Outlook>(
          [](const StartQuestion& question, const auto&) { return outlook_of(question); })),
      places_(
          studies_.add<PlacesQuestion, StartPlaces>([](const PlacesQuestion& question, const auto& course) {
            return places_of(question, [&] { return course.stopped(); });
          })),
      picture_(studies_.add<PictureQuestion, std::filesystem::path>(draw_picture)),
      welcome_(studies_),
      executable_(options.executable),
      panels_(settings.closed_panels, !settings.layout.empty()) {
  look_.fonts = load_fonts();
  look_.theme = settings.theme;
  sim::write_bytes_in(settings.bytes);
  view_.still = settings.still;
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.ConfigFlags |= ImGuiConfigFlags_DockingEnable | ImGuiConfigFlags_NavEnableKeyboard;
  io.ConfigWindowsMoveFromTitleBarOnly = true;
  // Ctrl+Tab goes from tab to tab, not from window to window.
  GImGui->ConfigNavWindowingKeyNext = GImGui->ConfigNavWindowingKeyPrev = ImGuiKey_None;
  // A blinking cursor would redraw an idle window for ever.
  io.ConfigInputTextCursorBlink = false;
  if (!settings.layout.empty())
    ImGui::LoadIniSettingsFromMemory(settings.layout.c_str(), settings.layout.size());
  first_ = options.scenario;
  restore(settings.tabs, settings.tab);
  unpredicted_.scenario = document().scenario();
  recent_files_ = std::move(settings.recent_files);
  lectures_ = std::move(settings.lectures);
  left_on_ = view_.used_last;
  // In the order of menus and of the palette.
  add_document_commands();
  add_tab_commands();
  add_export_commands();
  add_run_commands();
  add_pin_commands();
  panels_.make({studies_, commands_, tabs_, calibrations_, options.settings_directory});
  panels_.state<SweepState>().executable = options.executable;
  add_view_commands();
  add_presenter_commands();
  panels_.add_commands(commands_, view_, [this] { return presents(); });
  add_preset_commands();
  add_field_commands();
  commands_.take_own_keys(settings.keys);
  follow_document();
}

void Shell::prepare() {
  ImGuiIO& io = ImGui::GetIO();
  const auto apart = static_cast<ImGuiConfigFlags>(ImGuiConfigFlags_ViewportsEnable);
  io.ConfigFlags =
      panels_.state<LessonsState>().notes_apart() ? io.ConfigFlags | apart : io.ConfigFlags & ~apart;
  if (!style_is_old_) return;
  style_is_old_ = false;
  look_.scale = user_scale_ * display_scale_;
  look_.presented = presents();
  look_.colors = &palette(look_.theme);
  apply_style(look_);
}

void Shell::set_display_scale(float scale) {
  if (scale == display_scale_) return;
  display_scale_ = scale;
  style_is_old_ = true;
}

std::optional<double> Shell::changes_in() const {
  constexpr double kFrame = 1.0 / 30;
  if (view_.moves) return kFrame;
  const std::optional<double> toast = toast_.changes_in();
  return toast && view_.changes_in ? std::min(toast, view_.changes_in) : toast ? toast : view_.changes_in;
}

void Shell::draw_welcome() {
  const bool moves = !frozen_ && !view_.still;
  const WelcomeCard* const chosen = welcome_.draw(look_, moves);
  if (welcome_.is_open()) view_.moves = moves;
  if (chosen) commands_.invoke(chosen->command);
}

Settings Shell::settings() const {
  Settings settings;
  settings.theme = look_.theme;
  settings.scale = presentation_ ? presentation_->scale_before : user_scale_;
  settings.bytes = sim::byte_units();
  settings.still = view_.still;
  std::size_t size = 0;
  const char* layout = ImGui::SaveIniSettingsToMemory(&size);
  settings.layout.assign(layout, size);
  settings.closed_panels.assign(panels_.closed().begin(), panels_.closed().end());
  settings.tabs = kept_tabs();
  settings.keys = commands_.own_keys();
  settings.tab = tabs_.index();
  settings.recent_files = recent_files_;
  settings.lectures = lectures_;
  return settings;
}

void Shell::follow_document() {
  const sim::Scenario& scenario = document().scenario();
  prediction_.follow({scenario, calibrations_.of(scenario.hardware), tabs_.current().id});
  if (frozen_) return;
  outlook_.follow({scenario, runs_.choices.steps, calibrations_.of_this_machine(), runs_.choices.place});
  if (executable_.empty()) return;
  PlacesQuestion question{looked_for_places_, executable_, {}};
  for (const std::filesystem::path& file : recent_files_)
    if (file.extension() == ".ndjson") question.recordings.push_back(file);
  places_.follow(std::move(question));
}

void Shell::show_measured(std::span<const sim::Event> events) {
  runs_.show(events, [this](const sim::Source& source) {
    const auto known = calibrations_.of(source.scenario.hardware);
    std::optional<sim::Calibration> then;
    if (known) (then = *known)->slowdown = source.slowdown;
    return std::make_shared<const sim::Report>(sim::predict(source.scenario, then ? &*then : nullptr));
  });
}

void Shell::open(const std::filesystem::path& file) {
  try {
    OpenedFile opened = read_opened(file);
    const std::string name = file.filename().string();
    const bool is_export = file.extension() != ".json";
    if (auto* scenario = std::get_if<sim::Scenario>(&opened)) {
      // A picture is not written over by Save.
      open_in_tab("Open " + name, as_of_now(std::move(*scenario)),
                  is_export ? std::filesystem::path() : file);
    } else if (const auto* events = std::get_if<std::vector<sim::Event>>(&opened)) {
      show_measured(*events);
      toast_.say("Shown as a run: " + name + ".");
    } else if (const auto* model = std::get_if<sim::Model>(&opened)) {
      sim::Scenario next = document().scenario();
      next.model = *model;
      edit("Open model " + name, std::move(next));
    } else if (!panels_.open(file)) {
      return toast_.say("No panel shows " + file.string() + ".");
    }
    remember(file);
  } catch (const std::exception& error) {
    toast_.say(error.what());
  }
}

std::shared_ptr<const sim::Report> Shell::predicted() const {
  const bool answers = prediction_.result() && prediction_.request().tab == tabs_.current().id;
  return answers ? prediction_.result()->report : nullptr;
}

// A scenario that cannot be leaves the figures of the last that could on screen.
void Shell::take_over_prediction() {
  const Prediction* newest = prediction_.result();
  if (newest == seen_) return;
  seen_ = newest;
  disagreement_.clear();
  if (!newest || prediction_.request().tab != tabs_.current().id) return;
  if (newest->report) {
    tabs_.current().legal = *newest;
  } else if (tabs_.current().legal && !newest->problems.empty() && !newest->scenario.hardware.peak.empty()) {
    for (const sim::Problem& problem : newest->problems)
      disagreement_.append(disagreement_.empty() ? "" : "; ").append(in_labels(problem));
  }
}

const Outlook* Shell::outlook() const {
  const bool answers = outlook_.result() && outlook_.request().scenario == document().scenario() &&
                       outlook_.request().place == runs_.choices.place;
  return answers ? outlook_.result() : nullptr;
}

PanelContext Shell::context(const Look& look, Requests& requests, const sim::Scenario& scenario) {
  const bool is_legal_alone = !disagreement_.empty();
  return {look,
          scenario,
          calibrations_.of(scenario.hardware),
          is_legal_alone         ? *tabs_.current().legal
          : prediction_.result() ? *prediction_.result()
                                 : unpredicted_,
          disagreement_,
          outlook(),
          calibrations_.progress(),
          runs_,
          known_places_,
          places_.progress(),
          pins(),
          frozen_,
          view_,
          requests};
}

void Shell::edit(std::string label, sim::Scenario next, std::string_view key, bool whole) {
  if (next.hardware.name == sim::kThisMachine) cli::link_ranks(next);
  if (whole) return document().edit(std::move(label), std::move(next), key);
  const sim::Scenario& now = document().scenario();
  const sim::Scenario asked = with_taken_fields_back(now, next, document().history().undo);
  const sim::Scenario divided = with_division_following(now, asked);
  const sim::Scenario followed = with_batch_following(now, divided);
  // Divisions of training have their labels there.
  const auto in_training = [](sim::Scenario scenario) {
    scenario.workload.task = sim::Task::train;
    return scenario;
  };
  std::string more = differences(in_training(next), in_training(asked));
  std::string why = "What the change of task took away comes back: ";
  if (more.empty()) {
    more = differences(in_training(asked), in_training(divided));
    why = "What divides training alone goes: ";
  }
  if (more.empty()) {
    more = differences(divided, followed);
    why = "The batch follows: ";
  }
  if (!more.empty()) {
    label += ", " + more;
    toast_.say(why + more + ". Undo takes both back.");
  }
  document().edit(std::move(label), followed, key);
}

void Shell::carry_out(Requests& requests) {
  for (Edit& one : requests.edits) edit(std::move(one.label), std::move(one.scenario), one.key, one.whole);
  for (const PinRequest& request : requests.pins) carry_out(request);
  for (const std::string& command : requests.commands) commands_.invoke(command);
  if (!ImGui::IsAnyMouseDown() && !ImGui::IsAnyItemActive()) document().end_gesture();
}

void Shell::frame() {
  ++frames_drawn_;
  follow_document();
  studies_.poll();
  runs_.poll();
  take_over_places();
  if (calibrations_.take_over(ImGui::GetTime()) && !follow_this_machine() &&
      document().scenario().hardware.name != sim::kThisMachine)
    toast_.say("This machine is measured. Scenarios that are on it know it when they are shown.");
  tell_of_picture();
  if (!presenter_screen_.takes_input()) commands_.handle_shortcuts();
  follow_lecture();
  Requests requests;
  take_over_prediction();
  const PanelContext panel_context = context(look_, requests, document().scenario());
  const PanelContext legal_context = context(
      look_, requests, disagreement_.empty() ? document().scenario() : tabs_.current().legal->scenario);
  view_.hovered_operation.clear();
  view_.moves = false;
  view_.changes_in.reset();
  if (!find_panel(view_.maximised)) draw_host(panel_context);
  panels_.draw(panel_context, legal_context);
  draw_palette(look_, commands_, view_, requests);
  draw_shortcut_sheet(look_, commands_, view_);
  settings_window_.draw(look_, user_scale_, commands_, view_, requests);
  draw_welcome();
  if (find_panel(view_.maximised) && !toast_.words().empty()) {
    const ImGuiViewport& screen = *ImGui::GetMainViewport();
    draw_toast(*ImGui::GetForegroundDrawList(), look_, screen.Pos, screen.Size, toast_.words());
  }
  if (presentation_ && presenter_screen_.draw(look_, view_.still)) view_.moves = true;
  carry_out(requests);
  follow_document();
}

void Shell::draw_host(const PanelContext& context) {
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  ImGui::SetNextWindowPos(viewport->Pos);
  ImGui::SetNextWindowSize(viewport->Size);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(0, 0));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, 0);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 0);
  ImGui::PushStyleColor(ImGuiCol_WindowBg, look_.color().background);
  ImGui::Begin("##host", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoBringToFrontOnFocus | ImGuiWindowFlags_NoNavFocus |
                   ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoScrollWithMouse);
  ImGui::PopStyleColor();
  ImGui::PopStyleVar(3);

  draw_top_bar(context, commands_);
  const float margin = std::floor(look_.px(kMargin));
  const float tabs = draw_tab_strip(context, tabs_, std::floor(look_.px(kTopBarHeight)));
  const float top = std::floor(look_.px(kTopBarHeight)) + tabs + margin;
  const float bottom = std::floor(look_.px(kStatusBarHeight)) + margin;
  const ImVec2 size = {std::max(1.0f, viewport->Size.x - 2 * margin),
                       std::max(1.0f, viewport->Size.y - top - bottom)};
  ImGui::SetCursorPos({margin, top});
  panels_.draw_dock(look_, view_, size);
  draw_status_bar(context, document().undo_label(), toast_.words());
  ImGui::End();
}

}  // namespace app::gui
