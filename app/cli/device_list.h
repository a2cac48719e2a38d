// The devices of this machine as `ridgepoint doctor` writes them and the desktop reads them.
#pragma once
#include <string>
#include <vector>

#include "runtime/devices.h"

namespace app::cli {

// A device and its types, "NVIDIA H200: bf16, fp16, fp32.", or what it lacks.
std::string device_sentence(const runtime::MachineDevice& device);

// {"schema_version": 1, "devices": [{"device": "cuda:0", "name", "dtypes", "missing"}]}, on one line.
std::string devices_to_json(const std::vector<runtime::MachineDevice>& devices);
// Throws std::runtime_error with one sentence.
std::vector<runtime::MachineDevice> devices_from_json(const std::string& json);

}  // namespace app::cli
