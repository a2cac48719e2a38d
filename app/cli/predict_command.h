// The command that predicts a scenario, as a person would type it: `ridgepoint predict --model llama-3.1-8b
// --tp 2 ...`. Presets stand by name, fields by their flags; --set says what has no flag. Parsed again, the
// line is the scenario, to the last bit.
#pragma once
#include <string>

#include "app/cli/scenario_flags.h"

namespace app::cli {

std::string predict_command(const sim::Scenario& scenario);

// The same for a user who typed a scenario file, or other presets' names: the command keeps them.
std::string predict_command(const sim::Scenario& scenario, ScenarioFlags names);

// The flags among these that name presets and files.
ScenarioFlags named_by(const ScenarioFlags& flags);

}  // namespace app::cli
