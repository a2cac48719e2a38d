#include "runtime/gpu_calibration.h"

#include "runtime/calibrate.h"
#include "runtime/formats/atomic_file.h"
#include "runtime/formats/text_file.h"
#include "runtime/this_machine.h"
#include "sim/scenario/preset.h"

namespace runtime {

std::filesystem::path gpu_calibration_file(const std::string& hardware) {
  return cache_directory() / ("gpu-" + hardware + ".json");
}

std::optional<sim::Calibration> cached_gpu_calibration(const std::string& hardware) {
  const std::filesystem::path file = gpu_calibration_file(hardware);
  const std::optional<std::string> text = read_whole_file(file);
  if (!text) return std::nullopt;
  try {
    sim::Calibration calibration = sim::calibration_from_json(*text, file.string());
    if (calibration.software != gpu_kernels_version()) return std::nullopt;
    return calibration;
  } catch (const sim::PresetError&) {
    return std::nullopt;  // of another version, or damaged: it can be measured again
  }
}

sim::Calibration calibrate_this_gpu(const DeviceChoice& choice, const sim::Hardware& hardware,
                                    const EventSink& sink, std::stop_token stop) {
  sim::Calibration calibration = calibrate_gpu(choice, hardware, sink, stop);
  if (stop.stop_requested()) return calibration;  // partial: not worth keeping
  const std::string json = sim::to_json(calibration);
  AtomicFile file(gpu_calibration_file(hardware.name));
  file.write(std::as_bytes(std::span(json)));
  file.commit();
  return calibration;
}

}  // namespace runtime
