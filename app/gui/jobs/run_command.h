// A run on this machine as a command line of this program.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "app/gui/jobs/run.h"

namespace app::gui {

// The command that runs the scenario of a file and prints its events. `scenario` is the file's content.
std::vector<std::string> run_command(const std::string& executable, const std::filesystem::path& file,
                                     const sim::Scenario& scenario, const RunChoices& choices);

}  // namespace app::gui
