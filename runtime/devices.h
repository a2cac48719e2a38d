// The devices that a run can be on, by the names that --device takes.
#pragma once
#include <memory>
#include <optional>
#include <string_view>

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

// Throws NoDevice with a sentence that says what is missing.
std::unique_ptr<Device> open_device(const DeviceChoice& choice);

}  // namespace runtime
