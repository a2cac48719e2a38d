#include "sim/cost/calibration_preset.h"

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

}  // namespace sim
