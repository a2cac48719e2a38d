#include "runtime/gpu_calibration.h"

#include <system_error>

#include "runtime/calibrate.h"
#include "runtime/formats/atomic_file.h"
#include "runtime/formats/set_aside.h"
#include "runtime/this_machine.h"
#include "sim/file_text.h"
#include "sim/preset_error.h"

namespace runtime {

namespace {

std::string file_name(const std::string& hardware) {
  return "gpu-" + hardware + ".json";
}

std::string refit_name(const std::string& hardware) {
  return "refit-" + hardware + ".json";
}

}  // namespace

std::filesystem::path gpu_calibration_file(const std::string& hardware) {
  return writable_cache_directory() / file_name(hardware);
}

std::optional<sim::Calibration> cached_gpu_calibration(const std::string& hardware) {
  std::optional<sim::Calibration> calibration = cached_calibration(file_name(hardware));
  if (calibration && calibration->software != gpu_kernels_version()) return std::nullopt;
  return calibration;
}

sim::Calibration calibrate_this_gpu(const DeviceChoice& choice, const sim::Hardware& hardware,
                                    const EventSink& sink, std::stop_token stop) {
  sim::Calibration calibration = calibrate_gpu(choice, hardware, sink, stop);
  if (stop.stop_requested()) return calibration;  // partial: not worth keeping
  write_file(gpu_calibration_file(hardware.name), sim::to_json(calibration));
  return calibration;
}

std::optional<sim::Refit> cached_refit(const std::string& hardware) {
  const std::optional<std::filesystem::path> directory = cache_directory();
  if (!directory) return std::nullopt;
  const std::filesystem::path file = *directory / refit_name(hardware);
  const std::optional<std::string> text = sim::file_text(file);
  if (!text) return std::nullopt;
  try {
    return sim::refit_from_json(*text, file.string());
  } catch (const sim::PresetError& error) {
    set_aside(file, error.what(), "the calibration holds as it ships until it is refitted again");
    return std::nullopt;
  }
}

std::filesystem::path keep_refit(const sim::Refit& refit) {
  const std::filesystem::path file = writable_cache_directory() / refit_name(refit.hardware);
  write_file(file, sim::to_json(refit));
  return file;
}

void forget_refit(const std::string& hardware) {
  std::error_code none;  // it is not there
  if (const auto directory = cache_directory())
    std::filesystem::remove(*directory / refit_name(hardware), none);
}

}  // namespace runtime
