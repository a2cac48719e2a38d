// ridgepoint without a command: the desktop, or the tour where there is no display.
#include "app/gui/desktop.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "app/cli/command.h"
#include "app/cli/executable.h"
#include "app/cli/progress.h"
#include "app/cli/tour.h"
#include "app/lesson/lesson.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

// $XDG_CONFIG_HOME/ridgepoint or ~/.config/ridgepoint. Empty where there is no home; then no settings are
// kept.
std::filesystem::path settings_directory() {
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config != '\0')
    return std::filesystem::path(config) / "ridgepoint";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::filesystem::path(home) / ".config" / "ridgepoint";
  return {};
}

}  // namespace

ExitCode run_without_command(const std::vector<std::string>& tables,
                             const std::vector<std::string>& lessons) {
  for (const std::string& folder : lessons) lesson::require_lesson_folder(folder);
  try {
    return run_desktop({sim::load_scenario_preset("train-llama-3.1-8b-8-h100"),
                        executable_path(),
                        settings_directory(),
                        {tables.begin(), tables.end()},
                        {lessons.begin(), lessons.end()}}) == 0
               ? ExitCode::fine
               : ExitCode::internal;
  } catch (const NoDisplay& e) {
    to_stderr(
        fmt::format("ridgepoint: {}\nridgepoint: taking the tour instead, which needs none\n", e.what()));
  }
  return run_tour({});
}

}  // namespace app::cli
