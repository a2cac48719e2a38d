// A run on this machine as a command line of this program.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "app/gui/jobs/run.h"

namespace app::gui {

// That runs the scenario of a file and tells its events. `scenario` is what the file holds.
std::vector<std::string> run_command(const std::string& executable, const std::filesystem::path& file,
                                     const sim::Scenario& scenario, const RunChoices& choices);

}  // namespace app::gui
