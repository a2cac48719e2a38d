#include "app/gui/shell.h"

#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "app/gui/layout.h"
#include "app/gui/palette_window.h"
#include "app/gui/panels/panels.h"
#include "app/gui/widgets/text.h"
#include "runtime/this_machine.h"
#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr float kTopBarHeight = 50, kStatusBarHeight = 28, kMargin = 8;  // points
constexpr double kToastSeconds = 3;

// Also the id that the layout in the settings hangs from.
constexpr const char* kDockspace = "desktop";

// What the child process reads: the scenario as a file of its own.
std::filesystem::path write_run_scenario(const sim::Scenario& scenario,
                                         const std::filesystem::path& settings) {
  const std::filesystem::path directory =
      settings.empty() ? std::filesystem::temp_directory_path() : settings;
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  const auto file = directory / "run_scenario.json";
  std::ofstream out(file);
  out << sim::to_json(scenario);
  out.close();
  if (!out) throw std::runtime_error("The run's scenario could not be written to " + file.string() + ".");
  return file;
}

// Where panels share tabs, the caption stands in what the tabs leave free.
void draw_caption_beside_tabs(const Look& look, const ImGuiTabBar& tabs, const std::string& caption) {
  const ImRect bar = tabs.BarRect;
  const float free = bar.GetWidth() - tabs.WidthAllTabs - look.px(24);
  if (free < look.px(90)) return;
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->PushClipRect(bar.Min, bar.Max, false);
  draw_text(list, look, TextRole::caption, {bar.Max.x - look.px(4), (bar.Min.y + bar.Max.y) / 2},
            look.color().mute, fitted(look, TextRole::caption, caption, free), {1, 0.5f});
  list->PopClipRect();
}

}  // namespace

// Shared with the reading thread of a calibration.
struct Shell::CalibrationProgress {
  std::mutex mutex;
  std::int64_t done = 0, of = 0;
  sim::Seconds left;
  std::string message;
  bool ended = false;
};

Shell::Shell(const DesktopOptions& options, Settings settings, std::function<void()> wake, bool frozen)
    : executable_(options.executable),
      settings_directory_(options.settings_directory),
      wake_(wake),
      frozen_(frozen),
      user_scale_(settings.scale),
      document_(options.scenario),
      predictor_(std::move(wake)) {
  look_.fonts = load_fonts();
  look_.theme = settings.theme;
  closed_.insert(settings.closed_panels.begin(), settings.closed_panels.end());
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.ConfigFlags |= ImGuiConfigFlags_DockingEnable | ImGuiConfigFlags_NavEnableKeyboard;
  io.ConfigWindowsMoveFromTitleBarOnly = true;
  // A blinking cursor would redraw an idle window for ever.
  io.ConfigInputTextCursorBlink = false;
  if (!settings.layout.empty()) {
    ImGui::LoadIniSettingsFromMemory(settings.layout.c_str(), settings.layout.size());
    layout_is_old_ = false;
  }
  take_over_calibration();
  if (settings.scenario) {
    sim::Scenario last = std::move(*settings.scenario);
    // It may have been measured anew since.
    if (calibration_ && last.hardware.name == calibration_->hardware.name)
      last.hardware = calibration_->hardware;
    document_ = Document(std::move(last));
  }
  prediction_ = std::make_shared<const Prediction>(Prediction{.scenario = document_.scenario()});
  register_commands();
  register_panel_commands();
  register_preset_commands();
  refresh_prediction();
}

Shell::~Shell() = default;

void Shell::prepare() {
  if (!style_is_old_) return;
  style_is_old_ = false;
  look_.scale = user_scale_ * display_scale_;
  look_.colors = &palette(look_.theme);
  apply_style(look_);
}

void Shell::set_display_scale(float scale) {
  if (scale == display_scale_) return;
  display_scale_ = scale;
  style_is_old_ = true;
}

bool Shell::run_active() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const auto& run) { return !run.second->ended(); });
}

Settings Shell::settings() const {
  Settings settings;
  settings.theme = look_.theme;
  settings.scale = user_scale_;
  std::size_t size = 0;
  const char* layout = ImGui::SaveIniSettingsToMemory(&size);
  settings.layout.assign(layout, size);
  settings.closed_panels.assign(closed_.begin(), closed_.end());
  settings.scenario = document_.scenario();
  return settings;
}

void Shell::take_over_calibration() {
  try {
    if (auto calibration = runtime::cached_this_machine())
      calibration_ = std::make_shared<const sim::Calibration>(std::move(*calibration));
  } catch (const std::exception& error) {
    toast(error.what());
  }
}

void Shell::refresh_prediction() {
  if (!prediction_asked_ || predicted_revision_ != document_.revision()) {
    prediction_asked_ = true;
    predicted_revision_ = document_.revision();
    view_.refusal = {};
    predictor_.request(document_.scenario(), calibration_for(document_.scenario().hardware));
  }
  if (auto newest = predictor_.latest()) prediction_ = std::move(newest);
}

std::shared_ptr<const sim::Calibration> Shell::calibration_for(const sim::Hardware& hardware) {
  if (calibration_ && hardware == calibration_->hardware) return calibration_;
  if (hardware.name == sim::kThisMachine) return nullptr;
  const auto known = shipped_calibrations_.find(hardware.name);
  if (known != shipped_calibrations_.end()) return known->second;
  std::shared_ptr<const sim::Calibration> shipped;
  try {
    if (auto calibration = sim::load_calibration_preset(hardware.name))
      shipped = std::make_shared<const sim::Calibration>(std::move(*calibration));
  } catch (const std::exception& error) {
    toast(error.what());
  }
  return shipped_calibrations_[hardware.name] = shipped;
}

void Shell::show_measured(const sim::Report& report) {
  RunState state(report.source.scenario.workload.task, [this](const sim::Scenario& scenario) {
    return std::make_shared<const sim::Report>(
        sim::predict(scenario, calibration_for(scenario.hardware).get()));
  });
  state.replay(report);
  replayed_[report.source.scenario.workload.task] = state.view();
}

void Shell::start_run() {
  const sim::Task task = document_.scenario().workload.task;
  const bool train = task == sim::Task::train;
  try {
    const auto file = write_run_scenario(document_.scenario(), settings_directory_);
    std::vector<std::string> command = {executable_,        train ? "train" : "generate",
                                        "--scenario",       file.string(),
                                        "--implementation", "ridgepoint",
                                        "--dtype",          "fp32",
                                        "--stream"};
    if (train) {
      command.insert(command.end(), {"--steps", std::to_string(view_.train_steps)});
    } else {
      command.insert(command.end(), {"--prompt", view_.prompt});
    }
    // The child may have measured this machine before it begins: its cache is read then, not now.
    const PredictFor predict = [](const sim::Scenario& scenario) -> std::shared_ptr<const sim::Report> {
      try {
        const auto calibration = runtime::cached_this_machine();
        const bool calibrated = calibration && scenario.hardware == calibration->hardware;
        return std::make_shared<const sim::Report>(
            sim::predict(scenario, calibrated ? &*calibration : nullptr));
      } catch (const std::exception&) {
        return nullptr;  // measured all the same, with nothing beside it
      }
    };
    replayed_.erase(task);
    runs_[task] = std::make_unique<Run>(std::move(command), task, predict, wake_);
  } catch (const std::exception& error) {
    toast(error.what());
  }
}

void Shell::start_validation() {
  if (validation_) return;
  validation_ = std::make_unique<ValidationJob>(wake_);
  for (const std::filesystem::path& file : published_tables()) validation_->add(file);
}

void Shell::open_table(const std::filesystem::path& file) {
  start_validation();
  view_.validation.table = file.filename().string();
  view_.validation.column.clear();
  view_.validation.row.reset();
  validation_->add(file);
}

void Shell::wait_for_tables() const {
  if (validation_) validation_->wait();
}

void Shell::ask_for_studies(const Requests& requests) {
  const sim::Scenario& scenario = document_.scenario();
  std::pair asked(document_.revision(), requests.inference.value_or(InferenceChoices{}));
  if (requests.inference && (!inference_ || asked != asked_inference_)) {
    asked_inference_ = std::move(asked);
    if (!inference_)
      inference_ = std::make_unique<LatestAnswer<InferenceQuestion, InferenceStudy>>(
          [studies = std::make_shared<InferenceStudies>()](const InferenceQuestion& question, const auto&) {
            return studies->study(question);
          },
          wake_);
    inference_->ask({scenario, calibration_for(scenario.hardware), *requests.inference});
  }
  if (requests.economics && (!economics_ || asked_economics_ != document_.revision())) {
    asked_economics_ = document_.revision();
    if (!economics_)
      economics_ = std::make_unique<LatestAnswer<EconomicsQuestion, EconomicsStudy>>(
          [studies = std::make_shared<EconomicsStudies>()](const EconomicsQuestion& question, const auto&) {
            return studies->study(question);
          },
          wake_);
    economics_->ask({scenario, calibration_for(scenario.hardware)});
  }
  std::pair planned(document_.revision(), requests.serving_plan.value_or(ServingPlanChoices{}));
  if (requests.serving_plan && (!serving_plan_ || planned != asked_serving_plan_)) {
    asked_serving_plan_ = std::move(planned);
    if (!serving_plan_)
      serving_plan_ = std::make_unique<LatestAnswer<ServingPlanQuestion, ServingPlan>>(
          [](const ServingPlanQuestion& question, const auto&) { return plan_serving(question); }, wake_);
    serving_plan_->ask({scenario, calibration_for(scenario.hardware), *requests.serving_plan});
  }
  if (requests.planner_picks && planner_) planner_->compare(*requests.planner_picks);
}

void Shell::start_search() {
  if (!planner_) planner_ = std::make_unique<PlannerJob>(wake_);
  const sim::Scenario& scenario = document_.scenario();
  view_.planner.picks = {};
  planner_->start({scenario, calibration_for(scenario.hardware), view_.planner.choices});
}

void Shell::wait_for_studies() const {
  if (inference_) inference_->wait();
  if (economics_) economics_->wait();
  if (planner_) planner_->wait();
  if (serving_plan_) serving_plan_->wait();
}

void Shell::calibrate() {
  calibration_progress_ = std::make_shared<CalibrationProgress>();
  const auto progress = calibration_progress_;
  calibration_run_ = std::make_unique<ChildProcess>(
      std::vector<std::string>{executable_, "calibrate", "--stream"},
      [progress, wake = wake_](std::string_view line) {
        try {
          const sim::Event event = sim::event_from_ndjson(line);
          const std::lock_guard lock(progress->mutex);
          if (const auto* step = std::get_if<sim::ProgressEvent>(&event)) {
            progress->done = step->done;
            progress->of = step->of;
            progress->left = step->left;
          }
        } catch (const std::exception& error) {
          const std::lock_guard lock(progress->mutex);
          progress->message = error.what();
        }
        wake();
      },
      [] {},
      [progress, wake = wake_](const ChildEnd& end) {
        {
          const std::lock_guard lock(progress->mutex);
          progress->ended = true;
          if (!end.message.empty()) progress->message = end.message;
        }
        wake();
      });
}

PanelContext Shell::context(Requests& requests) const {
  static const RunView no_run;
  const auto run = [this](sim::Task task) -> const RunView& {
    const auto found = shown_runs_.find(task);
    return found == shown_runs_.end() ? no_run : *found->second;
  };
  return {look_,
          document_.scenario(),
          *prediction_,
          run(sim::Task::train),
          run(sim::Task::generate),
          shown_validation_.get(),
          shown_inference_.get(),
          shown_economics_.get(),
          shown_plan_.get(),
          shown_comparison_.get(),
          shown_serving_plan_.get(),
          calibration_ != nullptr,
          run_active(),
          frozen_,
          const_cast<View&>(view_),
          requests};
}

void Shell::carry_out(Requests& requests) {
  for (Edit& edit : requests.edits) document_.edit(std::move(edit.label), std::move(edit.scenario), edit.key);
  for (const std::string& command : requests.commands) commands_.invoke(command);
  ask_for_studies(requests);
  if (!ImGui::IsAnyMouseDown() && !ImGui::IsAnyItemActive()) document_.end_gesture();
}

void Shell::frame() {
  ++frames_drawn_;
  refresh_prediction();
  shown_runs_ = replayed_;
  for (const auto& [task, run] : runs_) shown_runs_[task] = run->view();
  if (validation_) shown_validation_ = validation_->view();
  if (inference_) shown_inference_ = inference_->latest();
  if (economics_) shown_economics_ = economics_->latest();
  if (serving_plan_) shown_serving_plan_ = serving_plan_->latest();
  if (planner_) {
    shown_plan_ = planner_->view();
    shown_comparison_ = planner_->comparison();
  }
  if (calibration_run_) {
    const std::lock_guard lock(calibration_progress_->mutex);
    view_.calibration.running = !calibration_progress_->ended;
    view_.calibration.done = calibration_progress_->done;
    view_.calibration.of = calibration_progress_->of;
    view_.calibration.left = calibration_progress_->left;
    view_.calibration.message = calibration_progress_->message;
  }
  if (calibration_run_ && !view_.calibration.running) {
    calibration_run_.reset();
    take_over_calibration();
    if (calibration_) commands_.invoke("hardware.this-machine");
  }

  commands_.handle_shortcuts();
  Requests requests;
  const PanelContext panel_context = context(requests);
  view_.hovered_operation.clear();
  if (const Panel* maximised = find_panel(view_.maximised)) {
    draw_maximised(*maximised, panel_context);
  } else {
    draw_host(panel_context);
    for (const Panel& panel : panels())
      if (!closed_.count(panel.id)) draw_panel(panel, panel_context);
  }
  draw_palette(look_, commands_, view_, requests);
  draw_shortcut_sheet(look_, commands_, view_);
  draw_toast();
  carry_out(requests);
  refresh_prediction();
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

  draw_top_bar(context);
  const float margin = std::floor(look_.px(kMargin));
  const float top = std::floor(look_.px(kTopBarHeight)) + margin;
  const float bottom = std::floor(look_.px(kStatusBarHeight)) + margin;
  const ImVec2 size = {std::max(1.0f, viewport->Size.x - 2 * margin),
                       std::max(1.0f, viewport->Size.y - top - bottom)};
  const ImGuiID dockspace = ImGui::GetID(kDockspace);
  if (layout_is_old_) {
    layout_is_old_ = false;
    build_layout(dockspace, size, look_.scale);
  }
  draw_cards(dockspace, look_);
  ImGui::SetCursorPos({margin, top});
  // Between cards: the gap itself.
  ImGui::PushStyleColor(ImGuiCol_Border, with_alpha(look_.color().border, 0));
  ImGui::PushStyleColor(ImGuiCol_WindowBg, look_.color().background);
  ImGui::DockSpace(dockspace, size, ImGuiDockNodeFlags_AutoHideTabBar);
  ImGui::PopStyleColor(2);
  draw_status_bar(context);
  ImGui::End();
}

void Shell::draw_panel(const Panel& panel, const PanelContext& panel_context) {
  const std::string name = window_name(panel);
  const ImGuiWindow* known = ImGui::FindWindowByName(name.c_str());
  // In the desktop's own dock, not in a floating one.
  const bool docked = known && known->DockNode && ImGui::DockNodeGetRootNode(known->DockNode)->IsDockSpace();
  bool open = true;
  ImGuiWindowFlags flags =
      ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse | ImGuiWindowFlags_NoCollapse |
      ImGuiWindowFlags_NoFocusOnAppearing;  // else the panel drawn last would hide those it shares tabs with
  const bool has_tab = docked && !known->DockNode->IsHiddenTabBar();
  // Docked, it stands on its node's card.
  ImGui::PushStyleColor(ImGuiCol_WindowBg, with_alpha(look_.color().panel, docked ? 0.0f : 1.0f));
  ImGui::PushStyleColor(ImGuiCol_Border, with_alpha(look_.color().border, docked ? 0.0f : 1.0f));
  // The corner by which a lone panel is undocked shows under the pointer only.
  ImGui::PushStyleColor(ImGuiCol_Button, with_alpha(look_.color().panel, 0));
  ImGui::PushStyleColor(ImGuiCol_ButtonActive, with_alpha(look_.color().panel, 0));
  if (panel.bare) ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(0, 0));
  ImGui::SetNextWindowSize({look_.px(480), look_.px(360)}, ImGuiCond_FirstUseEver);
  // A docked panel is closed by its command: a button in its tab would push its name aside.
  const bool visible = ImGui::Begin(name.c_str(), docked ? nullptr : &open, flags);
  if (panel.bare) ImGui::PopStyleVar();
  ImGui::PopStyleColor(4);
  if (visible) {
    const bool caption_in_tabs = has_tab && known->DockNode->TabBar;
    if (caption_in_tabs)
      draw_caption_beside_tabs(look_, *known->DockNode->TabBar, panel.caption(panel_context));
    draw_panel_body(panel, panel_context, docked && !has_tab, !caption_in_tabs);
  }
  ImGui::End();
  if (!open) closed_.insert(panel.id);
}

void Shell::draw_maximised(const Panel& panel, const PanelContext& panel_context) {
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  const float margin = std::floor(look_.px(kMargin));
  ImGui::GetBackgroundDrawList()->AddRectFilled(
      viewport->Pos, {viewport->Pos.x + viewport->Size.x, viewport->Pos.y + viewport->Size.y},
      look_.color().background);
  ImGui::SetNextWindowPos({viewport->Pos.x + margin, viewport->Pos.y + margin});
  ImGui::SetNextWindowSize({viewport->Size.x - 2 * margin, viewport->Size.y - 2 * margin});
  if (panel.bare) {
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(0, 0));
    ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 0);
  }
  ImGui::Begin("##maximised", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   (panel.bare ? ImGuiWindowFlags_NoBackground : 0) | ImGuiWindowFlags_NoDocking |
                   ImGuiWindowFlags_NoScrollWithMouse);
  ImGui::PopStyleVar(panel.bare ? 2 : 0);
  draw_panel_body(panel, panel_context, true, true);
  ImGui::End();
}

void Shell::draw_panel_body(const Panel& panel, const PanelContext& panel_context, bool with_title,
                            bool with_caption) {
  if (!panel.bare && (with_title || with_caption))
    draw_panel_title(look_, panel.title, with_caption ? panel.caption(panel_context) : "", with_title);
  ImGui::BeginChild("body");
  panel.draw(panel_context);
  ImGui::EndChild();
}

void Shell::toast(std::string words) {
  view_.toast = std::move(words);
  view_.toast_until = ImGui::GetTime() + kToastSeconds;
}

std::optional<double> Shell::changes_in() const {
  const double left = view_.toast_until - ImGui::GetTime();
  return left > 0 ? std::optional(left) : std::nullopt;
}

void Shell::draw_toast() const {
  if (view_.toast.empty() || ImGui::GetTime() > view_.toast_until) return;
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  const ImVec2 size = text_size_of(look_, TextRole::body, view_.toast);
  const ImVec2 padding = {look_.px(16), look_.px(10)};
  const ImVec2 most = {viewport->Pos.x + viewport->Size.x / 2 + size.x / 2 + padding.x,
                       viewport->Pos.y + viewport->Size.y - look_.px(48)};
  const ImVec2 least = {most.x - size.x - 2 * padding.x, most.y - size.y - 2 * padding.y};
  ImDrawList* list = ImGui::GetForegroundDrawList();
  list->AddRectFilled(least, most, look_.color().raised, look_.px(8));
  list->AddRect(least, most, look_.color().border, look_.px(8));
  draw_text(list, look_, TextRole::body, {least.x + padding.x, least.y + padding.y}, look_.color().text,
            view_.toast);
}

}  // namespace app::gui
