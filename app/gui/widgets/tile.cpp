#include "app/gui/widgets/tile.h"

#include <algorithm>
#include <cmath>

#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/plot.h"
#include "app/gui/widgets/text.h"

namespace app::gui {

void draw_card_frame(const Look& look, ImVec2 least, ImVec2 most, ImU32 border, bool lit) {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float rounding = ImGui::GetStyle().WindowRounding;
  const Palette& c = look.color();
  list->AddRectFilled(least, most, lit ? mix(c.panel, c.predicted, 0.14f) : c.panel, rounding);
  list->AddRect(least, most, border, rounding, 0, ImGui::GetStyle().WindowBorderSize);
}

void draw_bar(ImDrawList* list, const Look& look, ImVec2 least, ImVec2 most,
              const std::vector<BarPart>& parts, double limit) {
  double sum = 0;
  for (const BarPart& part : parts) sum += part.value;
  const double whole = std::max(limit, sum);
  if (whole <= 0) return;
  const float width = most.x - least.x;
  const float gap = std::max(1.0f, std::floor(look.px(1)));
  list->AddRectFilled(least, most, look.color().grid, look.px(2));
  double at = 0;
  for (const BarPart& part : parts) {
    const float begin = least.x + width * static_cast<float>(at / whole);
    at += part.value;
    const float end = least.x + width * static_cast<float>(at / whole);
    if (end - begin < 0.5f) continue;
    list->AddRectFilled({begin, least.y}, {std::max(begin + 0.5f, end - gap), most.y}, part.color,
                        look.px(2));
  }
  if (sum <= limit || limit <= 0) return;
  const float edge = least.x + width * static_cast<float>(limit / whole);
  hatch(list, look, {edge, least.y}, most, look.color().bad);
  list->AddRectFilled({edge - look.px(1), least.y - look.px(2)}, {edge + look.px(1), most.y + look.px(2)},
                      look.color().bad);
}

bool draw_tile(const Look& look, const Tile& given, ImVec2 size, bool selected) {
  Tile tile = given;
  const Palette& c = look.color();
  const ImVec2 least = ImGui::GetCursorScreenPos();
  const ImVec2 most = {least.x + size.x, least.y + size.y};
  const bool clicked = pressable(tile.id, size);
  const bool hovered = ImGui::IsItemHovered();
  draw_card_frame(look, least, most,
                  selected  ? mix(c.border, c.predicted, 0.6f)
                  : hovered ? c.mute
                            : c.border,
                  tile.is_lit);
  if (hovered && !tile.action.empty()) ImGui::SetItemTooltip("%s", tile.action.c_str());

  ImDrawList* list = ImGui::GetWindowDrawList();
  const float pad = look.px(14);
  const float inner = size.x - 2 * pad;
  float y = least.y + look.px(11);
  draw_text(list, look, TextRole::caption, {least.x + pad, y}, c.dim,
            fitted(look, TextRole::caption, tile.title, inner));
  y += text_size_of(look, TextRole::caption, tile.title).y + look.px(4);
  // Smaller type before a number without its unit beside it; the unit below it before a number smaller than
  // that.
  float unit_width = text_size_of(look, TextRole::body, tile.unit).x + look.px(6);
  const auto has_room = [&](TextRole role, const std::string& words) {
    return text_size_of(look, role, words).x + unit_width <= inner;
  };
  if (!tile.short_value.empty() && !has_room(TextRole::title, tile.value)) tile.value = tile.short_value;
  const float line_of_value = text_size_of(look, TextRole::tile, tile.value).y;
  const float line_of_unit = text_size_of(look, TextRole::caption, tile.unit).y;
  const bool is_below = !tile.unit.empty() && !has_room(TextRole::title, tile.value) &&
                        y + line_of_value + line_of_unit <= most.y - look.px(4);
  if (is_below) unit_width = 0;
  TextRole role = TextRole::tile;
  for (const TextRole smaller : {TextRole::heading, TextRole::title, TextRole::caption})
    if (!has_room(role, tile.value)) role = smaller;
  const ImVec2 value = text_size_of(look, role, tile.value);
  draw_text(list, look, role, {least.x + pad, y + line_of_value * 0.86f}, c.text,
            fitted(look, role, tile.value, inner), {0, 0.86f});
  const float unit_begin = value.x + look.px(6);
  const std::string with_rest = tile.of.empty() ? tile.unit : tile.unit + " " + tile.of;
  for (const std::string& unit : {with_rest, tile.unit}) {
    if (is_below || unit_begin + text_size_of(look, TextRole::body, unit).x > inner) continue;
    draw_text(list, look, TextRole::body, {least.x + pad + unit_begin, y + line_of_value * 0.86f}, c.dim,
              unit, {0, 1});
    break;
  }
  y += line_of_value + look.px(is_below ? 0 : 6);
  if (is_below) {
    draw_text(list, look, TextRole::caption, {least.x + pad, y}, c.dim,
              fitted(look, TextRole::caption, tile.unit, inner));
    y += line_of_unit + look.px(4);
  }
  if (!tile.bar.empty()) {
    const float thickness = std::floor(look.px(5));
    y = std::floor(y);
    draw_bar(list, look, {least.x + pad, y}, {most.x - pad, y + thickness}, tile.bar, tile.bar_limit);
    y += thickness + look.px(6);
  }
  const float line_height = text_size_of(look, TextRole::caption, "x").y;
  const auto write = [&](const std::string& words, ImU32 color) {
    if (words.empty() || y + line_height > most.y - look.px(4)) return;
    draw_text(list, look, TextRole::caption, {least.x + pad, y}, color,
              fitted(look, TextRole::caption, words, inner));
    y += line_height + look.px(2);
  };
  const auto that_fits = [&](const std::string& words, const std::string& shorter) {
    const bool fits = text_size_of(look, TextRole::caption, words).x <= inner;
    return fits || shorter.empty() ? words : shorter;
  };
  // Its colour says what it is where there is no room for the word.
  if (!tile.measured.empty()) write(that_fits("measured " + tile.measured, tile.measured), c.measured);
  write(that_fits(tile.line, tile.short_line), tile.line_color);
  write(that_fits(tile.second, tile.short_second), tile.line_color);
  return clicked;
}

}  // namespace app::gui
