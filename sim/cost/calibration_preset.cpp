#include "sim/cost/calibration_preset.h"

#include <filesystem>

#include "sim/file_text.h"
#include "sim/scenario/preset.h"

namespace sim {

std::optional<Calibration> load_calibration_preset(const std::string& hardware) {
  std::optional<GpuCalibration> gpu = load_gpu_calibration(hardware);
  if (!gpu) return std::nullopt;
  Calibration calibration;
  calibration.hardware = load_hardware_preset(hardware);
  calibration.device = calibration.hardware.display_name;
  calibration.software = "published measurements";
  calibration.launch = gpu->launch;
  calibration.gpu = std::move(gpu);
  return calibration;
}

std::optional<Calibration> load_measured_preset(const std::string& hardware) {
  const std::filesystem::path file = preset_directory() / "measured" / (hardware + ".json");
  const std::optional<std::string> text = file_text(file);
  if (!text) return std::nullopt;
  Calibration calibration = calibration_from_json(*text, file.string());
  if (const std::optional<Calibration> published = load_calibration_preset(hardware)) {
    calibration.gpu.emplace();
    calibration.gpu->collectives = published->gpu->collectives;
  }
  return calibration;
}

}  // namespace sim
