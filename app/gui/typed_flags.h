// Scenarios as text that people type or paste: flags as the command line takes them, or a scenario's JSON.
#pragma once
#include <string>
#include <string_view>

#include "sim/scenario/scenario.h"

namespace app::gui {

// "--seq-len 8k --dp 8", or a whole command, "ridgepoint predict --model ...".
bool is_flags(std::string_view text);

// Flags change the scenario that there is; a whole command, or JSON, says one of its own. Hardware that is
// this machine has no more than its name. Throws std::exception with a sentence that says what would be
// accepted.
sim::Scenario scenario_of_text(const sim::Scenario& now, const std::string& text);

}  // namespace app::gui
