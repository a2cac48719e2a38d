// Calibrations that ship with the program: GPUs that others measured, and its own kernels on some of them.
#pragma once
#include <optional>
#include <string>

#include "sim/cost/calibration.h"

namespace sim {

// Read from presets/calibrations/NAME.json, with the hardware preset of that name; empty where there is none.
// Throws PresetError.
std::optional<Calibration> load_calibration_preset(const std::string& hardware);

// Measured times of the program's own kernels, from presets/measured/NAME.json, which
// `ridgepoint calibrate --device cuda` wrote. It does not time collectives; those come from
// load_calibration_preset(). Empty where there is no such file. Throws PresetError.
std::optional<Calibration> load_measured_preset(const std::string& hardware);

}  // namespace sim
