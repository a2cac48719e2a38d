#include "runtime/gpu_state.h"

#include <dlfcn.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <optional>
#include <utility>

namespace runtime {
namespace {

// The part of NVML's interface that is used here, as nvml.h declares it; functions are stable by their names.
using NvmlDevice = struct nvmlDevice_st*;
constexpr int kSuccess = 0;
constexpr int kSmClock = 1, kMemoryClock = 2;  // nvmlClockType_t
constexpr int kGpuTemperature = 0;             // nvmlTemperatureSensors_t
constexpr unsigned kTextLength = 96;           // NVML_DEVICE_NAME_V2_BUFFER_SIZE

class Nvml {
 public:
  // Loaded and started once; null, with a sentence, where it cannot be. Never unloaded.
  static const Nvml* get(std::string* why = nullptr) {
    static const Nvml nvml;
    if (why != nullptr) *why = nvml.why_not_;
    return nvml.why_not_.empty() ? &nvml : nullptr;
  }

  std::string driver_version() const {
    std::array<char, kTextLength> text{};
    return system_driver_version(text.data(), kTextLength) == kSuccess ? text.data() : "";
  }
  unsigned count() const {
    unsigned n = 0;
    return device_count(&n) == kSuccess ? n : 0;
  }
  std::optional<NvmlDevice> at(unsigned index) const {
    NvmlDevice device = nullptr;
    return device_by_index(index, &device) == kSuccess ? std::optional(device) : std::nullopt;
  }
  std::optional<NvmlDevice> at(const std::string& pci_bus_id) const {
    NvmlDevice device = nullptr;
    return device_by_pci(pci_bus_id.c_str(), &device) == kSuccess ? std::optional(device) : std::nullopt;
  }
  std::string name(NvmlDevice device) const {
    std::array<char, kTextLength> text{};
    return device_name(device, text.data(), kTextLength) == kSuccess ? text.data() : "";
  }
  // What a GPU does not tell (some are not allowed to) is 0.
  double clock_mhz(NvmlDevice device, int clock) const { return number(clock_info, device, clock); }
  double highest_clock_mhz(NvmlDevice device, int clock) const {
    return number(max_clock_info, device, clock);
  }
  double temperature_c(NvmlDevice device) const { return number(temperature, device, kGpuTemperature); }
  double power_w(NvmlDevice device) const {
    unsigned milliwatts = 0;
    return power_usage(device, &milliwatts) == kSuccess ? milliwatts * 1e-3 : 0;
  }
  unsigned long long throttle_bits(NvmlDevice device) const {
    unsigned long long bits = 0;
    return throttle(device, &bits) == kSuccess ? bits : 0;
  }

 private:
  using Number = int (*)(NvmlDevice, int, unsigned*);

  Nvml() {
    const char* const named = std::getenv("RIDGEPOINT_NVML");  // another file than the driver's
    const char* const file = named != nullptr && *named != '\0' ? named : "libnvidia-ml.so.1";
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      why_not_ = std::string("NVML, which comes with NVIDIA's driver, does not load: ") + dlerror();
      return;
    }
    int (*init)() = nullptr;
    const char* (*error_text)(int) = nullptr;
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
      if (function == nullptr) why_not_ = std::string("NVML has no function ") + symbol;
    };
    find(init, "nvmlInit_v2");
    find(error_text, "nvmlErrorString");
    find(system_driver_version, "nvmlSystemGetDriverVersion");
    find(device_count, "nvmlDeviceGetCount_v2");
    find(device_by_index, "nvmlDeviceGetHandleByIndex_v2");
    find(device_by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
    find(device_name, "nvmlDeviceGetName");
    find(clock_info, "nvmlDeviceGetClockInfo");
    find(max_clock_info, "nvmlDeviceGetMaxClockInfo");
    find(temperature, "nvmlDeviceGetTemperature");
    find(power_usage, "nvmlDeviceGetPowerUsage");
    find(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (!why_not_.empty()) return;
    if (const int error = init(); error != kSuccess)
      why_not_ = std::string("NVML does not start: ") + error_text(error);
  }

  static double number(Number function, NvmlDevice device, int which) {
    unsigned value = 0;
    return function(device, which, &value) == kSuccess ? value : 0;
  }

  std::string why_not_;
  int (*system_driver_version)(char*, unsigned) = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*device_by_pci)(const char*, NvmlDevice*) = nullptr;
  int (*device_name)(NvmlDevice, char*, unsigned) = nullptr;
  Number clock_info = nullptr, max_clock_info = nullptr, temperature = nullptr;
  int (*power_usage)(NvmlDevice, unsigned*) = nullptr;
  int (*throttle)(NvmlDevice, unsigned long long*) = nullptr;
};

}  // namespace

DriverStatus driver_status() {
  DriverStatus status;
  const Nvml* const nvml = Nvml::get(&status.sentence);
  if (nvml == nullptr) return status;
  for (unsigned i = 0; i < nvml->count(); ++i)
    if (const auto device = nvml->at(i))
      status.gpus.push_back({nvml->name(*device), nvml->driver_version(), nvml->clock_mhz(*device, kSmClock),
                             nvml->clock_mhz(*device, kMemoryClock),
                             nvml->highest_clock_mhz(*device, kSmClock)});
  if (status.gpus.empty()) status.sentence = "NVIDIA's driver is here and sees no GPU";
  return status;
}

std::string throttle_reasons(unsigned long long bits) {
  struct Reason {
    unsigned long long bit;
    const char* name;
  };
  constexpr Reason kReasons[] = {
      {0x2, "clock setting"}, {0x4, "power cap"},       {0x8, "hardware slowdown"},
      {0x10, "sync boost"},   {0x20, "thermal limit"},  {0x40, "hardware thermal"},
      {0x80, "power brake"},  {0x100, "display clock"},
  };
  std::string text;
  for (const Reason& reason : kReasons)
    if (bits & reason.bit) text += (text.empty() ? "" : ", ") + std::string(reason.name);
  return text;
}

struct GpuMonitor::Source {
  const Nvml& nvml;
  NvmlDevice device;
  std::condition_variable_any wake;
};

GpuMonitor::GpuMonitor(const std::string& pci_bus_id, std::chrono::milliseconds interval) {
  using Clock = std::chrono::steady_clock;
  const Nvml* const nvml = pci_bus_id.empty() ? nullptr : Nvml::get();
  const auto device = nvml == nullptr ? std::nullopt : nvml->at(pci_bus_id);
  if (!device) return;
  source_.reset(new Source{*nvml, *device, {}});
  thread_ = std::jthread([this, interval, begin = Clock::now()](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      lock.unlock();
      const sim::DeviceSample sample{{std::chrono::duration<double>(Clock::now() - begin).count()},
                                     source_->nvml.clock_mhz(source_->device, kSmClock),
                                     source_->nvml.clock_mhz(source_->device, kMemoryClock),
                                     source_->nvml.power_w(source_->device),
                                     source_->nvml.temperature_c(source_->device),
                                     throttle_reasons(source_->nvml.throttle_bits(source_->device))};
      lock.lock();
      samples_.push_back(sample);
      source_->wake.wait_for(lock, stop, interval, [] { return false; });
    }
  });
}

GpuMonitor::~GpuMonitor() = default;

std::vector<sim::DeviceSample> GpuMonitor::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(samples_, {});
}

}  // namespace runtime
