#include "app/gui/widgets/figure_bars.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "app/gui/widgets/legend.h"
#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

constexpr float kMostBar = 130;  // points, with what is free above and below

}  // namespace

void draw_figure_bars(const Look& look, const FigureBars& bars, ImVec2 size, std::span<const ImU32> colors) {
  const Palette& c = look.color();
  double greatest = 0;
  for (const FigureBars::Row& row : bars.rows) {
    double sum = row.from;
    for (const double value : row.values) sum += value;
    greatest = std::max(greatest, sum);
  }
  if (bars.rows.empty() || !(greatest > 0)) return;
  const ScaleUnit unit = scale_of(bars.measure, greatest);
  float names = 0, sum_width = 0;
  for (const FigureBars::Row& row : bars.rows) {
    const double sum = std::accumulate(row.values.begin(), row.values.end(), 0.0);
    names = std::max(names, text_size_of(look, TextRole::body, row.name).x);
    sum_width = std::max(sum_width, text_size_of(look, TextRole::number, unit.text(sum)).x + look.px(12));
  }
  constexpr float kNames = 0.35f;  // of the width, at most
  const float line = text_size_of(look, TextRole::body, "x").y + look.px(2);
  const float share = size.y / static_cast<float>(bars.rows.size());
  // Names that are longer stand above their bars, where there is height for both.
  const bool above = names > size.x * kNames && share >= 2 * line;
  const float name_height = above ? line : 0;
  names = above ? 0 : std::min(names, size.x * kNames);
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float left = above ? begin.x : begin.x + names + look.px(10);
  const float width = std::max(1.0f, begin.x + size.x - sum_width - left);
  const float row_height = std::clamp(share, line, name_height + look.px(kMostBar));
  ImDrawList* list = ImGui::GetWindowDrawList();
  float y = begin.y;
  for (std::size_t r = 0; r < bars.rows.size() && y + row_height <= begin.y + size.y + 1; ++r) {
    const FigureBars::Row& row = bars.rows[r];
    const float bar = y + name_height, bar_height = row_height - name_height, middle = bar + bar_height / 2;
    const ImU32 name_color = r < colors.size() ? colors[r] : c.text;
    if (above)
      draw_text(list, look, TextRole::body, {left, bar}, name_color,
                fitted(look, TextRole::body, row.name, size.x), {0, 1});
    else
      draw_text(list, look, TextRole::body, {left - look.px(10), middle}, name_color,
                fitted(look, TextRole::body, row.name, names), {1, 0.5f});
    double sum = row.from;
    const auto at = [&](double value) { return left + width * static_cast<float>(value / greatest); };
    const float inset = bar_height * 0.15f;
    for (std::size_t i = 0; i < row.values.size(); ++i) {
      if (!(row.values[i] > 0)) continue;
      const ImVec2 least = {at(sum), bar + inset}, most = {at(sum + row.values[i]), bar + bar_height - inset};
      sum += row.values[i];
      if (most.x - least.x < 0.5f) continue;
      const ImU32 color = bars.parts[i].color;
      list->AddRectFilled(least, {std::max(least.x + 0.75f, most.x - 1), most.y}, color, look.px(2));
      const std::string value = unit.digits(row.values[i]);
      if (text_size_of(look, TextRole::number, value).x + look.px(8) < most.x - least.x)
        draw_text(list, look, TextRole::number, {(least.x + most.x) / 2, middle}, text_on(color), value,
                  {0.5f, 0.5f});
      if (ImGui::IsMouseHoveringRect(least, most) && ImGui::IsWindowHovered())
        ImGui::SetTooltip("%s: %s", bars.parts[i].name.c_str(), text_of(row.values[i], bars.measure).c_str());
    }
    draw_text(list, look, TextRole::number, {at(sum) + look.px(6), middle}, c.text, unit.text(sum - row.from),
              {0, 0.5f});
    y += row_height;
  }
  ImGui::Dummy({size.x, y - begin.y});
}

void draw_figure_legend(const Look& look, const FigureBars& bars, float width) {
  std::vector<LegendEntry> entries;
  for (std::size_t i = 0; i < bars.parts.size(); ++i)
    if (std::any_of(bars.rows.begin(), bars.rows.end(), [i](const auto& row) { return row.values[i] > 0; }))
      entries.push_back({bars.parts[i].color, bars.parts[i].name});
  draw_legend(look, entries, width);
}

}  // namespace app::gui
