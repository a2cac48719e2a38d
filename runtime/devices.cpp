#include "runtime/devices.h"

#include <charconv>

#include "runtime/cuda_backend.h"

namespace runtime {

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

std::unique_ptr<Device> open_device(const DeviceChoice& choice) {
  if (choice.kind == DeviceChoice::Kind::cuda)
    return open_cuda_device({.ordinal = choice.ordinal, .deterministic = choice.deterministic});
  return make_cpu_device(choice.threads);
}

}  // namespace runtime
