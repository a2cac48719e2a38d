// What NVIDIA's driver says of a GPU while it works: clocks, power, temperature, and why the clock is held
// back. By NVML, which comes with the driver and is loaded when it is first asked for; without it there is
// nothing to read, and nothing fails.
#pragma once
#include <chrono>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "sim/report/report.h"

namespace runtime {

// A GPU as its driver describes it.
struct GpuDescription {
  std::string name, driver;                       // "NVIDIA H200", "570.86.15"
  double sm_clock_mhz = 0, memory_clock_mhz = 0;  // now
  double highest_sm_clock_mhz = 0;
};

struct DriverStatus {
  std::vector<GpuDescription> gpus;
  std::string sentence;  // why there are none, empty otherwise
};
DriverStatus driver_status();

// The names of NVML's bits for why a clock is below its highest (nvml.h, nvmlClocksThrottleReasons), by
// commas; idleness is no reason. Empty where nothing holds it back.
std::string throttle_reasons(unsigned long long bits);

// Samples a GPU on a thread of its own as long as it lives.
class GpuMonitor {
 public:
  // pci_bus_id as CUDA gives it, "0000:17:00.0"; empty, or without NVML: there will be no samples.
  explicit GpuMonitor(const std::string& pci_bus_id,
                      std::chrono::milliseconds interval = std::chrono::milliseconds(100));
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // Those that have come since the last call; times are from the monitor's start.
  std::vector<sim::DeviceSample> take();

 private:
  struct Source;

  std::unique_ptr<Source> source_;
  std::mutex mutex_;
  std::vector<sim::DeviceSample> samples_;
  std::jthread thread_;
};

}  // namespace runtime
