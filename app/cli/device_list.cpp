#include "app/cli/device_list.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "sim/dtype.h"

namespace app::cli {

std::string device_sentence(const runtime::MachineDevice& device) {
  if (!device.missing.empty()) return fmt::format("{}: {}", device.name, device.missing);
  std::vector<std::string_view> types;
  for (const sim::DType dtype : device.dtypes) types.push_back(sim::name(dtype));
  return fmt::format("{}: {}.", device.name, fmt::join(types, ", "));
}

std::string devices_to_json(const std::vector<runtime::MachineDevice>& devices) {
  nlohmann::ordered_json json = {{"schema_version", 1}, {"devices", nlohmann::ordered_json::array()}};
  for (const runtime::MachineDevice& device : devices) {
    nlohmann::ordered_json types = nlohmann::ordered_json::array();
    for (const sim::DType dtype : device.dtypes) types.push_back(sim::name(dtype));
    json["devices"].push_back(
        {{"device", device.flag}, {"name", device.name}, {"dtypes", types}, {"missing", device.missing}});
  }
  return json.dump();
}

std::vector<runtime::MachineDevice> devices_from_json(const std::string& json) {
  std::vector<runtime::MachineDevice> devices;
  try {
    const nlohmann::json parsed = nlohmann::json::parse(json);
    for (const nlohmann::json& entry : parsed.at("devices")) {
      runtime::MachineDevice device{entry.at("device"), entry.at("name"), {}, entry.at("missing")};
      for (const std::string type : entry.at("dtypes"))
        if (const std::optional<sim::DType> dtype = sim::from_name<sim::DType>(type))
          device.dtypes.push_back(*dtype);
      devices.push_back(std::move(device));
    }
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(std::string("The list of devices cannot be read: ") + error.what() + ".");
  }
  if (devices.empty()) throw std::runtime_error("The list of devices is empty.");
  return devices;
}

}  // namespace app::cli
