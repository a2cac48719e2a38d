// The rate of a network between nodes, read from a table's words: "Selene: 8x200Gb HDR IB", "400 Gb/s RoCE
// per GPU", "EFA".
#pragma once
#include <optional>
#include <string_view>

#include "sim/units.h"

namespace sim {

// The rate of a GPU's share of the adapters, in one direction; empty where the text names no rate.
std::optional<BytesPerSecond> network_link_of(std::string_view interconnect, int devices_per_node);

}  // namespace sim
