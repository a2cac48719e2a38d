// What a calibration had timed when it was interrupted: the next one goes on from there.
#pragma once
#include <string>
#include <string_view>

#include "runtime/timed_pieces.h"
#include "sim/cost/calibration.h"

namespace runtime {

struct BegunCalibration {
  // What comes before the pieces: the machine, its caches, the bandwidth of its memory. No samples, and no
  // device where nothing has begun.
  sim::Calibration calibration;
  TimedPieces pieces;
};

// As a file. Throws PresetError with its name.
std::string to_json(const BegunCalibration& begun);
BegunCalibration begun_calibration_from_json(std::string_view json, const std::string& file);

}  // namespace runtime
