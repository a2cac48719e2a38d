// The scenario that an export carries, so that the export can be opened again: in a picture's text (PNG), in
// a drawing's metadata (SVG), in a page's script (HTML).
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "sim/scenario/scenario.h"

namespace app::gui {

inline constexpr std::string_view kCarriedInPng = "ridgepoint scenario";  // the text's keyword

// The same drawing with the scenario in it.
std::string svg_with(std::string svg, const sim::Scenario& scenario);

// The JSON of the scenario in a file with this content, PNG, SVG or HTML; nothing where it has none.
std::optional<std::string> carried_scenario(std::string_view file);

}  // namespace app::gui
