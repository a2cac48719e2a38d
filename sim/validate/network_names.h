// The rate of a network between nodes, by the words of a table: "Selene: 8x200Gb HDR IB", "400 Gb/s RoCE per
// GPU", "EFA".
#pragma once
#include <optional>
#include <string_view>

#include "sim/units.h"

namespace sim {

// Rate of a GPU's share of the adapters, in one direction; empty where the text names none.
std::optional<BytesPerSecond> network_link_of(std::string_view interconnect, int devices_per_node);

}  // namespace sim
