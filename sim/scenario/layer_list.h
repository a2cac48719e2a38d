// A list of layers as text: numbers and ranges by commas, "0-3,7".
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sim {

// The layers, ascending; nothing where the text is no such list: not ascending, or with numbers above
// kMostLayers.
std::optional<std::vector<std::int64_t>> layers_listed(std::string_view text);

// Layers, ascending, as text.
std::string layer_list(const std::vector<std::int64_t>& layers);

}  // namespace sim
