#include "app/gui/desktop.h"

#include <imgui.h>
#include <imgui_impl_null.h>
#include <imgui_impl_opengl3.h>
#include <implot.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "app/gui/figures/carried.h"
#include "app/gui/offscreen.h"
#include "app/gui/panels/lessons.h"
#include "app/gui/panels/panels.h"
#include "app/gui/panels/sweep.h"
#include "app/gui/png.h"
#include "app/gui/settings.h"
#include "app/gui/shell.h"
#include "app/gui/window.h"
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

namespace {

// The desktop in its window. A page draws on when run_desktop() has returned, so that the frames own it.
class Desktop {
 public:
  explicit Desktop(const DesktopOptions& options)
      : directory_(options.settings_directory),
        shell_(
            options, gui::load_settings(directory_), [this] { window_.wake(); }, false),
        first_start_(!directory_.empty() && !gui::has_settings(directory_)) {
    for (const std::filesystem::path& table : options.tables) shell_.open(table);
    for (const std::filesystem::path& folder : options.lessons)
      shell_.panels().state<gui::LessonsState>().add_folder(folder);
    if (first_start_) shell_.welcome();
    kept_ = shell_.revision();
  }

  gui::Window& window() { return window_; }

  void keep() {
    try {
      gui::save_settings(shell_.settings(), directory_);
      window_.files_were_written();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "ridgepoint: %s\n", error.what());
    }
  }

  void prepare() {
    shell_.set_display_scale(window_.display_scale());
    shell_.prepare();
  }

  bool frame() {
    for (const std::filesystem::path& file : window_.take_dropped()) shell_.open(file);
    shell_.frame();
    if (const auto seconds = shell_.changes_in()) window_.draw_again_in(*seconds);
    // Never again, once there is a layout to keep.
    if (first_start_ && shell_.frames_drawn() > std::size_t{kWarmUpFrames}) {
      first_start_ = false;
      keep();
    }
    // After every change, so that a window that is killed has lost none of them.
    if (shell_.revision() != kept_ && !ImGui::IsAnyItemActive()) {
      kept_ = shell_.revision();
      keep();
      window_.show_in_address(sim::to_json(shell_.document().scenario()));
    }
    return !shell_.wants_close();
  }

 private:
  gui::Window window_;  // first: the rest needs its contexts
  std::filesystem::path directory_;
  gui::Shell shell_;
  bool first_start_;
  std::size_t kept_ = 0;
};

}  // namespace

int run_desktop(const DesktopOptions& options) {
  const auto desktop = std::make_shared<Desktop>(options);
  desktop->window().run([desktop] { desktop->prepare(); }, [desktop] { return desktop->frame(); });
  desktop->keep();
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
