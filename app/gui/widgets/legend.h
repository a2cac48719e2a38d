// Colours and what they mean, in as many lines as the width asks for.
#pragma once
#include <imgui.h>

#include <span>
#include <string_view>

#include "app/gui/theme.h"

namespace app::gui {

struct LegendEntry {
  ImU32 color = 0;
  std::string_view words;
  bool ring = false;  // as of a dot that is not filled
};

float legend_height(const Look& look, std::span<const LegendEntry> entries, float width);
void draw_legend(const Look& look, std::span<const LegendEntry> entries, float width);

}  // namespace app::gui
