#include "runtime/devices.h"

#include <cctype>
#include <charconv>

#include "runtime/cuda_backend.h"
#include "runtime/error.h"
#include "runtime/gpu_state.h"

namespace runtime {
namespace {

std::string as_sentence(std::string text) {
  if (text.empty()) return text;
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text.back() == '.' ? text : text + '.';
}

MachineDevice cpu() {
  MachineDevice device{.flag = "cpu", .name = "CPU", .dtypes = {}, .missing = {}};
  try {
    const std::unique_ptr<Device> opened = make_cpu_device(0);
    device.name = opened->name();
    device.dtypes.assign(opened->dtypes().begin(), opened->dtypes().end());
  } catch (const NoDevice& reason) {
    device.missing = as_sentence(reason.what());
  }
  return device;
}

}  // namespace

std::optional<DeviceChoice> device_choice_from_name(std::string_view name) {
  constexpr std::string_view kCuda = "cuda";
  DeviceChoice choice;
  if (name == "cpu") return choice;
  if (!name.starts_with(kCuda)) return std::nullopt;
  choice.kind = DeviceChoice::Kind::cuda;
  name.remove_prefix(kCuda.size());
  if (name.empty()) {
    choice.any_gpu = true;
    return choice;
  }
  const char* const end = name.data() + name.size();
  if (name.front() != ':') return std::nullopt;
  const auto [rest, error] = std::from_chars(name.data() + 1, end, choice.ordinal);
  if (error != std::errc() || rest != end || choice.ordinal < 0) return std::nullopt;
  return choice;
}

std::vector<MachineDevice> machine_devices() {
  std::vector<MachineDevice> devices = {cpu()};
  const auto gpu_flag = [](std::size_t ordinal) { return "cuda:" + std::to_string(ordinal); };
  const CudaStatus cuda = cuda_status();
  for (std::size_t i = 0; i < cuda.gpus.size(); ++i)
    devices.push_back({gpu_flag(i), cuda.gpus[i].name, cuda.gpus[i].dtypes, {}});
  if (!cuda.gpus.empty()) return devices;
  const DriverStatus driver = driver_status();
  for (std::size_t i = 0; i < driver.gpus.size(); ++i)
    devices.push_back({gpu_flag(i), driver.gpus[i].name, {}, as_sentence(cuda.sentence)});
  if (driver.gpus.empty())
    devices.push_back({"cuda", "GPU", {}, as_sentence(cuda.sentence) + " " + as_sentence(driver.sentence)});
  return devices;
}

std::unique_ptr<Device> open_device(const DeviceChoice& choice) {
  if (choice.kind == DeviceChoice::Kind::cuda)
    return open_cuda_device({.ordinal = choice.ordinal, .deterministic = choice.deterministic});
  return make_cpu_device(choice.threads);
}

}  // namespace runtime
