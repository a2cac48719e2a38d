// The desktop: a window where there is a display, the same frames drawn into pictures where there is none.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "sim/report/events.h"
#include "sim/scenario/scenario.h"

namespace app {

enum class Theme { dark, light, high_contrast };
// As settings and flags name them.
inline constexpr std::array<std::string_view, 3> kThemeNames = {"dark", "light", "high-contrast"};
constexpr std::string_view name(Theme theme) {
  return kThemeNames[static_cast<std::size_t>(theme)];
}
constexpr std::optional<Theme> theme_called(std::string_view words) {
  for (std::size_t i = 0; i < kThemeNames.size(); ++i)
    if (kThemeNames[i] == words) return static_cast<Theme>(i);
  return std::nullopt;
}

struct DesktopOptions {
  sim::Scenario scenario;                           // what is shown where the last session left none
  std::string executable;                           // this program, for child processes (runs)
  std::filesystem::path settings_directory;         // layout, theme, last scenario; empty: nothing is kept
  std::vector<std::filesystem::path> tables = {};   // of measurements, for the validation panel
  std::vector<std::filesystem::path> lessons = {};  // folders of them, beside presets/lessons
};

// No display could be opened; the message is a sentence.
struct NoDisplay : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs until the window is closed. Throws NoDisplay.
int run_desktop(const DesktopOptions& options);

struct ScreenshotOptions {
  sim::Scenario scenario;
  // Runs, each from its beginning on: shown as if they had just ended.
  std::vector<std::vector<sim::Event>> measured;
  std::vector<std::filesystem::path> tables;  // of measurements, for the validation panel
  std::string panel;                          // one of panel_names(), or "" for the whole desktop
  int width = 1600, height = 1000;            // pixels
  double scale = 1;                           // of fonts and lines
  std::string sweep, sweep_by;  // fields that the sweep panel is of, by their paths; "": its own choice
  Theme theme = Theme::dark;
};

// Stable names: "scenario", "overview", "memory", "roofline", "live", "compare", ...
std::vector<std::string> panel_names();

// The endings of files that write_screenshot() writes, for help and for messages: ".png", ".svg", ...
std::vector<std::string> picture_endings();

// A frame drawn without a display: rows from the top, 4 bytes a pixel, red first. Throws NoDisplay where no
// off-screen OpenGL is to be had.
std::vector<std::uint8_t> screenshot_pixels(const ScreenshotOptions& options);

// Draws a frame without a display and writes it as PNG. Other endings are written without OpenGL: what the
// panel shows, or all panels, as SVG, CSV, TSV, Markdown (.md), a Chrome trace of the step (.json) or a page
// (.html). Throws runtime::InputError for an unknown panel or ending and where there is nothing to write, and
// NoDisplay where no off-screen OpenGL is to be had for a PNG.
void write_screenshot(const ScreenshotOptions& options, const std::filesystem::path& file);

}  // namespace app
