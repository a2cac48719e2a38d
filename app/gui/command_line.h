// The scenario as a person would type it.
#pragma once
#include <string>

#include "sim/scenario/scenario.h"

namespace app::gui {

// "ridgepoint predict --model llama-3.1-8b --hardware h100-sxm --task train --dtype bf16 ...". Shapes that
// were edited away from their preset have no flags: the JSON of the scenario carries those.
std::string command_line(const sim::Scenario& scenario);

}  // namespace app::gui
