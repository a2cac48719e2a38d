// What tables of measurements call a GPU, in free text, as the hardware preset that it is: "A100-SXM4-80GB",
// "H100-80GB-SXM", "A100 (SXM, NVSwitch)".
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace sim {

// A preset's name; empty where none is meant. A chip without its form factor is taken for its SXM module.
std::optional<std::string> hardware_preset_of(std::string_view device);

}  // namespace sim
