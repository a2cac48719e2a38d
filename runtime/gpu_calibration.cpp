#include "runtime/gpu_calibration.h"

#include "runtime/calibrate.h"
#include "runtime/formats/atomic_file.h"
#include "runtime/this_machine.h"

namespace runtime {

namespace {

std::string file_name(const std::string& hardware) {
  return "gpu-" + hardware + ".json";
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
  const std::string json = sim::to_json(calibration);
  AtomicFile file(gpu_calibration_file(hardware.name));
  file.write(std::as_bytes(std::span(json)));
  file.commit();
  return calibration;
}

}  // namespace runtime
