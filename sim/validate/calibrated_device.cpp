#include "sim/validate/calibrated_device.h"

#include <map>
#include <mutex>
#include <string>

#include "sim/scenario/preset.h"
#include "sim/validate/device_names.h"

namespace sim {

const CalibratedDevice& calibrated_device(std::string_view name) {
  if (name.empty()) throw CannotPredict("gpu is not given");
  const std::optional<std::string> preset = hardware_preset_of(name);
  if (!preset) throw CannotPredict("unknown GPU \"" + std::string(name) + "\": no hardware preset matches");
  static std::mutex mutex;
  static std::map<std::string, std::optional<CalibratedDevice>, std::less<>> loaded;
  const std::scoped_lock lock(mutex);
  const std::string key = (preset_directory() / *preset).string();  // of presets that may be exchanged
  auto found = loaded.find(key);
  if (found == loaded.end()) {
    std::optional<CalibratedDevice> device;
    if (std::optional<GpuCalibration> gpu = load_gpu_calibration(*preset)) {
      device.emplace();
      device->hardware = load_hardware_preset(*preset);
      device->gpu = std::move(*gpu);
      device->calibration.hardware = device->hardware;
      device->calibration.device = device->hardware.display_name;
      device->calibration.launch = device->gpu.launch;
      device->calibration.gpu = device->gpu;
    }
    found = loaded.emplace(key, std::move(device)).first;
  }
  if (!found->second) throw CannotPredict("there is no calibration of " + *preset);
  return *found->second;
}

DType tabulated_dtype(std::string_view text) {
  const auto says = [&](std::string_view word) { return text.find(word) != std::string_view::npos; };
  if (text.empty()) throw CannotPredict("dtype is not given");
  if (says("fp8") || says("float8")) return DType::fp8;
  if (says("bf16") || says("bfloat16")) return DType::bf16;
  if (says("fp16") || says("float16") || says("half")) return DType::fp16;
  if (says("tf32")) return DType::tf32;
  if (says("fp32") || says("float32")) return DType::fp32;
  if (says("int8")) return DType::int8;
  throw CannotPredict("dtype \"" + std::string(text) + "\" is none of fp8, bf16, fp16, tf32, fp32, int8");
}

Prediction as_time(std::string_view column, const MeasuredTime& time, double seconds_of_unit) {
  return {column, time.seconds.value / seconds_of_unit, time.low.value / seconds_of_unit,
          time.high.value / seconds_of_unit};
}

Prediction as_rate(std::string_view column, const MeasuredTime& time, double amount) {
  return {column, amount / time.seconds.value, amount / time.high.value, amount / time.low.value};
}

}  // namespace sim
