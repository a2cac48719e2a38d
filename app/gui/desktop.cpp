#include "app/gui/desktop.h"

#include <imgui.h>
#include <imgui_impl_null.h>
#include <imgui_impl_opengl3.h>
#include <implot.h>

#include <cstdio>
#include <exception>

#include "app/gui/figures/carried.h"
#include "app/gui/offscreen_egl.h"
#include "app/gui/panels/lessons.h"
#include "app/gui/panels/panels.h"
#include "app/gui/panels/sweep.h"
#include "app/gui/png.h"
#include "app/gui/settings.h"
#include "app/gui/shell.h"
#include "app/gui/window_glfw.h"
#include "runtime/error.h"
#include "sim/scenario/preset.h"

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

struct NoScreen {
  NoScreen() { ImGui_ImplNull_Init(); }
  ~NoScreen() { ImGui_ImplNull_Shutdown(); }
};

std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

constexpr const char* kPictureEnding = ".png";

// A frame at a time, as the options have the desktop, through a backend.
template <class Backend, class Drawn>
void draw_frames(const ScreenshotOptions& options, const Backend& frame, const Drawn& drawn) {
  ImGuiIO& io = ImGui::GetIO();
  gui::Settings settings;
  settings.theme = options.theme;
  settings.scale = static_cast<float>(options.scale);
  gui::Shell shell(
      {options.scenario, "", {}, {}}, settings, [] {}, true);
  for (const std::filesystem::path& table : options.tables) shell.open(table);
  for (const std::vector<sim::Event>& run : options.measured) shell.show_measured(run);
  shell.view().maximised = options.panel;
  auto& sweep = shell.panels().state<gui::SweepState>();
  sweep.field = options.sweep;
  sweep.by = options.sweep_by;
  shell.wait_for_prediction();
  drawn(shell, [&](int frames) {
    for (int i = 0; i < frames; ++i) {
      shell.wait_for_studies();  // which panels ask for once they are seen
      shell.prepare();
      frame([&] {
        io.DisplaySize = {static_cast<float>(options.width), static_cast<float>(options.height)};
        io.DeltaTime = kFrameSeconds;
        ImGui::NewFrame();
        shell.frame();
        ImGui::Render();
      });
    }
  });
}

// Panels ask their studies when they are seen: one after the other where all are written.
void write_figures(const ScreenshotOptions& options, const std::filesystem::path& file,
                   gui::ExportFormat format) {
  constexpr int kFrames = 4;
  const Contexts contexts;
  const NoScreen backend;
  draw_frames(
      options,
      [](const auto& within) {
        ImGui_ImplNull_NewFrame();
        within();
        ImGui_ImplNullRender_RenderDrawData(ImGui::GetDrawData());
      },
      [&](gui::Shell& shell, const auto& draw) {
        for (const gui::PanelEntry* panel : gui::panels()) {
          if (options.panel.empty() ? !panel->of_prediction : options.panel != panel->id) continue;
          shell.view().maximised = panel->id;
          draw(kFrames);
        }
        gui::write_text(file.string(), shell.exported(options.panel, format));
      });
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
  for (const std::filesystem::path& folder : options.lessons)
    shell.panels().state<gui::LessonsState>().add_folder(folder);
  const auto keep = [&] {
    try {
      gui::save_settings(shell.settings(), options.settings_directory);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "ridgepoint: %s\n", error.what());
    }
  };
  bool first_start = !options.settings_directory.empty() && !gui::has_settings(options.settings_directory);
  if (first_start) shell.welcome();
  std::size_t kept = shell.revision();
  window.run(
      [&] {
        shell.set_display_scale(window.display_scale());
        shell.prepare();
      },
      [&] {
        for (const std::filesystem::path& file : window.take_dropped()) shell.open(file);
        shell.frame();
        if (const auto seconds = shell.changes_in()) window.draw_again_in(*seconds);
        // Never again, once there is a layout to keep.
        if (first_start && shell.frames_drawn() > std::size_t{kWarmUpFrames}) {
          first_start = false;
          keep();
        }
        // After every change, so that a window that is killed has lost none of them.
        if (shell.revision() != kept && !ImGui::IsAnyItemActive()) {
          kept = shell.revision();
          keep();
        }
        return !shell.wants_close();
      });
  keep();
  return 0;
}

std::vector<std::string> picture_endings() {
  std::vector<std::string> endings = {kPictureEnding};
  for (int i = 0; i < gui::kExportFormats; ++i)
    endings.emplace_back(gui::ending_of(static_cast<gui::ExportFormat>(i)));
  return endings;
}

std::vector<std::uint8_t> screenshot_pixels(const ScreenshotOptions& options) {
  gui::Offscreen offscreen(options.width, options.height);
  const Contexts contexts;
  const OpenGl backend;
  draw_frames(
      options,
      [](const auto& within) {
        ImGui_ImplOpenGL3_NewFrame();
        within();
        ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
      },
      [](gui::Shell&, const auto& draw) { draw(kWarmUpFrames); });
  return offscreen.read_pixels();
}

void write_screenshot(const ScreenshotOptions& options, const std::filesystem::path& file) {
  if (!options.panel.empty() && !gui::find_panel(options.panel))
    throw runtime::InputError("There is no panel \"" + options.panel + "\": the panels are " +
                              list_of(panel_names()) + ".");
  if (options.width < 1 || options.height < 1)
    throw runtime::InputError("A picture is at least one pixel wide and high.");
  const std::string ending = file.extension().string();
  if (ending == kPictureEnding || ending.empty())
    return gui::write_png(file, options.width, options.height, screenshot_pixels(options),
                          {gui::kCarriedInPng, sim::to_json(options.scenario)});
  const auto format = gui::format_with_ending(ending);
  if (!format)
    throw runtime::InputError("No export is called " + ending + ": a file ends in " +
                              list_of(picture_endings()) + ".");
  write_figures(options, file, *format);
}

}  // namespace app
