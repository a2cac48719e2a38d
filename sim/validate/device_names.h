// The hardware preset that a table of measurements means by its free text for a GPU: "A100-SXM4-80GB",
// "H100-80GB-SXM", "A100 (SXM, NVSwitch)".
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace sim {

// A preset's name; empty where none is meant. A chip without its form factor is taken for its SXM module.
std::optional<std::string> hardware_preset_of(std::string_view device);

}  // namespace sim
