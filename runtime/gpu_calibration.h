// Calibrations of GPUs that are kept for this user, and go before those that ship as presets: measured on
// this machine's, or a preset's own refitted to a table of measurements.
#pragma once
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>

#include "runtime/devices.h"
#include "runtime/train.h"
#include "sim/cost/calibration.h"
#include "sim/cost/refit.h"

namespace runtime {

// Where the calibration of the GPU that the hardware preset describes is kept.
std::filesystem::path gpu_calibration_file(const std::string& hardware);
std::optional<sim::Calibration> cached_gpu_calibration(const std::string& hardware);

// Measures the GPU (calibrate.h) and keeps the result. Throws NoDevice where it cannot be used.
sim::Calibration calibrate_this_gpu(const DeviceChoice& choice, const sim::Hardware& hardware,
                                    const EventSink& sink, std::stop_token stop);

// The refit of a hardware preset's calibration that is kept; nothing where none is. A file that is no refit
// is set aside with a sentence. Throws std::system_error where the disk fails to give it.
std::optional<sim::Refit> cached_refit(const std::string& hardware);
// In place of the one before; says where. Throws InputError where it cannot be written.
std::filesystem::path keep_refit(const sim::Refit& refit);
// The preset's calibration as it ships holds again.
void forget_refit(const std::string& hardware);

}  // namespace runtime
