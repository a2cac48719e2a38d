// The devices that a run can be on, by the names that --device takes.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device.h"

namespace runtime {

struct DeviceChoice {
  enum class Kind { cpu, cuda } kind = Kind::cpu;
  int ordinal = 0;             // of the GPU
  bool any_gpu = false;        // none was named: ranks take one each, as far as there are
  int threads = 0;             // of the CPU; 0: all cores
  bool deterministic = false;  // of the GPU: the same bits in every process (the CPU gives them anyway)
};

// "cpu", "cuda" (any GPU), "cuda:1"; empty for anything else. Other fields are the default's.
std::optional<DeviceChoice> device_choice_from_name(std::string_view name);

// A device of this machine, whether runs can be on it or not.
struct MachineDevice {
  std::string flag;                // as --device takes it: "cpu", "cuda:0"; "cuda" where no GPU is seen
  std::string name;                // "Intel Xeon, 4 threads", "NVIDIA H200"
  std::vector<sim::DType> dtypes;  // that runs on it compute in, the one they take by themselves first
  std::string missing;             // why no run can be on it, a sentence; empty: one can
  bool is_gpu() const { return flag != "cpu"; }
  bool operator==(const MachineDevice&) const = default;
};

// The CPU, then the GPUs that runs can be on. Where there are none: those that the driver sees, or else one
// that stands for them, with what is missing.
std::vector<MachineDevice> machine_devices();

// Throws NoDevice with a sentence that says what is missing.
std::unique_ptr<Device> open_device(const DeviceChoice& choice);

}  // namespace runtime
