// How many scenarios and reports stand beside each other, each with a letter and a colour.
#pragma once
#include <cstddef>

namespace app::gui {

inline constexpr std::size_t kPins = 5;

}  // namespace app::gui
