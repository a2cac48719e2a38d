#include "app/gui/desktop.h"

#include <imgui.h>
#include <imgui_impl_opengl3.h>
#include <implot.h>

#include <cstdio>
#include <exception>

#include "app/gui/offscreen_egl.h"
#include "app/gui/panels/panels.h"
#include "app/gui/png.h"
#include "app/gui/settings.h"
#include "app/gui/shell.h"
#include "app/gui/window_glfw.h"
#include "runtime/error.h"

namespace app {
namespace {

// Docking, tables and plots measure themselves over a few frames before they stand still.
constexpr int kWarmUpFrames = 12;
constexpr float kFrameSeconds = 1.0f / 60;

struct Contexts {
  Contexts() {
    ImGui::CreateContext();
    ImPlot::CreateContext();
  }
  ~Contexts() {
    ImPlot::DestroyContext();
    ImGui::DestroyContext();
  }
};

struct OpenGl {
  OpenGl() { ImGui_ImplOpenGL3_Init("#version 330"); }
  ~OpenGl() { ImGui_ImplOpenGL3_Shutdown(); }
};

std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

std::vector<std::string> panel_names() {
  std::vector<std::string> names;
  for (const gui::PanelEntry* panel : gui::panels()) names.emplace_back(panel->id);
  return names;
}

int run_desktop(const DesktopOptions& options) {
  gui::Window window;
  gui::Shell shell(
      options, gui::load_settings(options.settings_directory), [&window] { window.wake(); }, false);
  for (const std::filesystem::path& table : options.tables) shell.open(table);
  const auto keep = [&] {
    try {
      gui::save_settings(shell.settings(), options.settings_directory);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "ridgepoint: %s\n", error.what());
    }
  };
  std::size_t kept = shell.document().revision();
  window.run(
      [&] {
        shell.set_display_scale(window.display_scale());
        shell.prepare();
      },
      [&] {
        for (const std::filesystem::path& file : window.take_dropped()) shell.open(file);
        shell.frame();
        if (const auto seconds = shell.changes_in()) window.draw_again_in(*seconds);
        // After every edit, so that a window that is killed has lost none of them.
        if (shell.document().revision() != kept && !ImGui::IsAnyItemActive()) {
          kept = shell.document().revision();
          keep();
        }
        return !shell.wants_close();
      });
  keep();
  return 0;
}

void write_screenshot(const ScreenshotOptions& options, const std::filesystem::path& png) {
  if (!options.panel.empty() && !gui::find_panel(options.panel))
    throw runtime::InputError("There is no panel \"" + options.panel + "\": the panels are " +
                              list_of(panel_names()) + ".");
  if (options.width < 1 || options.height < 1)
    throw runtime::InputError("A picture is at least one pixel wide and high.");
  gui::Offscreen offscreen(options.width, options.height);
  const Contexts contexts;
  const OpenGl backend;
  ImGuiIO& io = ImGui::GetIO();
  io.DisplaySize = {static_cast<float>(options.width), static_cast<float>(options.height)};
  io.DeltaTime = kFrameSeconds;
  gui::Settings settings;
  settings.theme = options.theme;
  settings.scale = static_cast<float>(options.scale);
  gui::Shell shell(
      {options.scenario, "", {}, {}}, settings, [] {}, true);
  for (const std::filesystem::path& table : options.tables) shell.open(table);
  for (const sim::Report& report : options.measured) shell.show_measured(report);
  shell.view().maximised = options.panel;
  shell.wait_for_prediction();
  for (int i = 0; i < kWarmUpFrames; ++i) {
    shell.wait_for_studies();  // which panels ask for once they are seen
    shell.prepare();
    ImGui_ImplOpenGL3_NewFrame();
    ImGui::NewFrame();
    shell.frame();
    ImGui::Render();
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  }
  gui::write_png(png, options.width, options.height, offscreen.read_pixels());
}

}  // namespace app
