// How many candidates of a search were refused for which reason, as bars.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "app/gui/theme.h"

namespace app::gui {

// "strategy.tensor_parallel" is written "tensor parallel"; the most frequent first, as many as there is room.
void draw_reasons(const Look& look, const std::map<std::string, std::int64_t>& refused, ImVec2 size);

}  // namespace app::gui
