// The desktop on Dear ImGui's null backend: whole frames without a display, driven by injected input.
#pragma once
#include <imgui.h>
#include <imgui_impl_null.h>
#include <imgui_internal.h>
#include <implot.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "app/gui/panels/panels.h"
#include "app/gui/redraw_policy.h"
#include "app/gui/shell.h"
#include "sim/scenario/preset.h"

namespace tests {

inline sim::Scenario small_scenario() {
  sim::Scenario scenario;
  scenario.model = sim::load_model_preset("gpt2-124m");
  scenario.hardware = sim::load_hardware_preset("h100-sxm");
  scenario.implementation = sim::load_implementation_preset("ridgepoint");
  scenario.workload.seq_len = 1024;
  scenario.workload.micro_batch_size = 4;
  scenario.workload.global_batch_size = 4;
  return scenario;
}

class NullDesktop {
 public:
  explicit NullDesktop(sim::Scenario scenario = small_scenario(), ImVec2 size = {1600, 1000},
                       app::gui::Settings settings = {}, std::string executable = "")
      : size_(size),
        contexts_(size),
        shell_(
            {std::move(scenario), std::move(executable), {}}, std::move(settings), [this] { news_ = true; },
            false) {
    shell_.wait_for_prediction();
    frames(4);
  }

  app::gui::Shell& shell() { return shell_; }
  // The state of the panel that has one of this type.
  template <class State>
  State& state() {
    return shell_.panels().state<State>();
  }

  void frame() {
    now_ += kFrame;
    draw(kFrame);
  }
  // What the window does for this long: a frame where the policy asks for one, and else nothing.
  void live(double seconds) {
    for (const double end = now_ + seconds; now_ < end; now_ += kFrame) {
      if (news_.exchange(false)) policy_.on_news();
      if (!policy_.should_draw(now_)) continue;
      draw(std::max(kFrame, now_ - drawn_at_));
      if (const auto left = shell_.changes_in()) policy_.draw_at(now_ + *left);
      policy_.drawn(now_);
    }
  }
  // Every word that a frame draws.
  std::string words() {
    logged_ = true;
    frame();
    logged_ = false;
    return std::move(words_);
  }
  // Whether a frame says this.
  bool says(std::string_view what) { return words().find(what) != std::string::npos; }
  void resize(ImVec2 size) { size_ = size; }
  void frames(int n) {
    for (int i = 0; i < n; ++i) frame();
  }
  // Until the newest prediction is on screen.
  void settle() {
    frame();
    shell_.wait_for_prediction();
    frames(3);
  }
  // Until what the panels that are seen have asked for is on screen, too.
  void settle_studies() {
    settle();
    shell_.wait_for_studies();
    frames(3);
  }
  void press(ImGuiKeyChord chord) {
    ImGuiIO& io = ImGui::GetIO();
    for (const ImGuiKey modifier : {ImGuiMod_Ctrl, ImGuiMod_Shift, ImGuiMod_Alt})
      if (chord & modifier) io.AddKeyEvent(modifier, true);
    io.AddKeyEvent(static_cast<ImGuiKey>(chord & ~ImGuiMod_Mask_), true);
    frames(2);
    io.AddKeyEvent(static_cast<ImGuiKey>(chord & ~ImGuiMod_Mask_), false);
    for (const ImGuiKey modifier : {ImGuiMod_Ctrl, ImGuiMod_Shift, ImGuiMod_Alt})
      if (chord & modifier) io.AddKeyEvent(modifier, false);
    frames(2);
  }
  void click(ImVec2 at) {
    ImGuiIO& io = ImGui::GetIO();
    io.AddMousePosEvent(at.x, at.y);
    frames(2);
    io.AddMouseButtonEvent(0, true);
    frames(2);
    io.AddMouseButtonEvent(0, false);
    frames(2);
  }
  void type(const char* text) {
    ImGui::GetIO().AddInputCharactersUTF8(text);
    frames(2);
  }
  const ImGuiWindow* window_of(const std::string& panel) const {
    return ImGui::FindWindowByName(app::gui::window_name(*app::gui::find_panel(panel)).c_str());
  }

 private:
  static constexpr double kFrame = 1.0 / 60;  // seconds
  // `after`: seconds since the last frame.
  void draw(double after) {
    drawn_at_ = now_;
    ImGui_ImplNull_NewFrame();
    // The backend has a size of its own.
    ImGui::GetIO().DisplaySize = size_;
    ImGui::GetIO().DeltaTime = static_cast<float>(after);
    shell_.prepare();
    ImGui::NewFrame();
    if (logged_) ImGui::LogToBuffer();
    shell_.frame();
    if (logged_) words_ = GImGui->LogBuffer.c_str();
    ImGui::Render();
    ImGui_ImplNullRender_RenderDrawData(ImGui::GetDrawData());
  }

  struct Contexts {
    explicit Contexts(ImVec2 size) {
      ImGui::CreateContext();
      ImPlot::CreateContext();
      ImGui_ImplNull_Init();
      ImGui::GetIO().DisplaySize = size;
    }
    ~Contexts() {
      ImGui_ImplNull_Shutdown();
      ImPlot::DestroyContext();
      ImGui::DestroyContext();
    }
  };
  std::atomic<bool> news_ = false;  // before the shell, whose predictor writes it
  app::gui::RedrawPolicy policy_;
  double now_ = 0, drawn_at_ = 0;  // seconds
  ImVec2 size_;
  bool logged_ = false;
  std::string words_;
  Contexts contexts_;
  app::gui::Shell shell_;
};

}  // namespace tests
