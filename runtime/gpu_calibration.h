// Calibrations of this machine's GPUs, measured here and kept; they go before those that ship as presets.
#pragma once
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>

#include "runtime/devices.h"
#include "runtime/train.h"
#include "sim/cost/calibration.h"

namespace runtime {

// Where the calibration of the GPU that the hardware preset describes is kept.
std::filesystem::path gpu_calibration_file(const std::string& hardware);
std::optional<sim::Calibration> cached_gpu_calibration(const std::string& hardware);

// Measures the GPU (calibrate.h) and keeps the result. Throws NoDevice where it cannot be used.
sim::Calibration calibrate_this_gpu(const DeviceChoice& choice, const sim::Hardware& hardware,
                                    const EventSink& sink, std::stop_token stop);

}  // namespace runtime
