// Calibrations that ship with the program: GPUs that others measured.
#pragma once
#include <optional>
#include <string>

#include "sim/cost/calibration.h"

namespace sim {

// Read from presets/calibrations/NAME.json, with the hardware preset of that name; empty where there is none. Throws
// PresetError.
std::optional<Calibration> load_calibration_preset(const std::string& hardware);

}  // namespace sim
