// The command that predicts a scenario, as a person would type it: `ridgepoint predict --model llama-3.1-8b
// --tp 2 ...`. Presets stand by name, fields by their flags; --set says what has no flag. Parsed again, the
// line is the scenario, to the last bit.
#pragma once
#include <string>

#include "app/cli/scenario_flags.h"

namespace app::cli {

std::string predict_command(const sim::Scenario& scenario);

// The same beside a scenario file, or presets of other names, that the user typed.
std::string predict_command(const sim::Scenario& scenario, ScenarioFlags names);

// Those of the typed flags that name presets and files.
ScenarioFlags named_by(const ScenarioFlags& flags);

}  // namespace app::cli
