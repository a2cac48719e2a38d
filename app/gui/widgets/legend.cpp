#include "app/gui/widgets/legend.h"

#include <cmath>

#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

float line_height(const Look& look) {
  return text_size_of(look, TextRole::caption, "x").y + look.px(4);
}

// Calls place(entry, upper left corner within the legend, width); returns the height of all.
template <class Place>
float lay_out(const Look& look, std::span<const LegendEntry> entries, float width, Place place) {
  const float swatch = std::floor(look.px(9)) + look.px(6), line = line_height(look);
  ImVec2 at = {0, 0};
  for (const LegendEntry& entry : entries) {
    const float needed = swatch + text_size_of(look, TextRole::caption, entry.words).x;
    if (at.x > 0 && at.x + needed > width) at = {0, at.y + line};
    place(entry, at);
    at.x += needed + look.px(16);
  }
  return at.y + line;
}

}  // namespace

float legend_height(const Look& look, std::span<const LegendEntry> entries, float width) {
  return lay_out(look, entries, width, [](const LegendEntry&, ImVec2) {});
}

void draw_legend(const Look& look, std::span<const LegendEntry> entries, float width) {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float swatch = std::floor(look.px(9)), half_line = line_height(look) / 2;
  const float height = lay_out(look, entries, width, [&](const LegendEntry& entry, ImVec2 at) {
    const float x = begin.x + at.x, middle = begin.y + at.y + half_line;
    if (entry.ring)
      list->AddCircle({x + swatch / 2, middle}, swatch / 2, entry.color, 0, look.px(1.4f));
    else
      list->AddRectFilled({x, middle - swatch / 2}, {x + swatch, middle + swatch / 2}, entry.color,
                          look.px(2));
    draw_text(list, look, TextRole::caption, {x + swatch + look.px(6), middle}, look.color().dim, entry.words,
              {0, 0.5f});
  });
  ImGui::Dummy({width, height});
}

}  // namespace app::gui
