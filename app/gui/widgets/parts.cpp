#include "app/gui/widgets/parts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

struct Grid {
  int columns = 1, rows = 1;
};
struct Placed {
  int part = 0, row = 0, column = 0, columns = 1;
};
using Page = std::vector<Placed>;

// Fewer than four parts have the whole height each.
Grid grid_for(const Look& look, ImVec2 room, std::span<const PanelPart> parts) {
  constexpr float kTwoColumns = 660, kThreeColumns = 1000, kTwoRows = 520;  // points
  constexpr std::size_t kOneRow = 3;
  int columns = 0;
  for (const PanelPart& part : parts) columns += part.columns;
  const int most = room.x >= look.px(kThreeColumns) ? 3 : room.x >= look.px(kTwoColumns) ? 2 : 1;
  const bool two_rows = most > 1 && parts.size() > kOneRow && room.y >= look.px(kTwoRows);
  return {std::min(most, columns), two_rows ? 2 : 1};
}

std::vector<Page> pages_of(std::span<const PanelPart> parts, Grid grid) {
  std::vector<Page> pages(1);
  int row = 0, column = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int columns = std::min(parts[i].columns, grid.columns);
    if (column + columns > grid.columns) {
      // The row is full: its last part has what is left of it.
      pages.back().back().columns += grid.columns - column;
      column = 0;
      if (++row == grid.rows) {
        row = 0;
        pages.emplace_back();
      }
    }
    pages.back().push_back({static_cast<int>(i), row, column, columns});
    column += columns;
  }
  pages.back().back().columns += grid.columns - column;
  return pages;
}

void draw_page(const Look& look, const Page& page, std::span<const PanelPart> parts) {
  const Placed& last = page.back();
  const int columns = last.column + last.columns, rows = last.row + 1;
  const float gap = look.px(16);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float width =
      std::floor((room.x - static_cast<float>(columns - 1) * gap) / static_cast<float>(columns));
  const float height = std::floor((room.y - static_cast<float>(rows - 1) * gap) / static_cast<float>(rows));
  for (const Placed& one : page) {
    if (one.column > 0)
      ImGui::SameLine(0, gap);
    else if (one.row > 0)
      ImGui::SetCursorPosY(ImGui::GetCursorPosY() + gap - ImGui::GetStyle().ItemSpacing.y);
    ImGui::PushID(one.part);
    const float wide = width + static_cast<float>(one.columns - 1) * (width + gap);
    if (ImGui::BeginChild("part", {wide, height}, ImGuiChildFlags_NavFlattened))
      parts[static_cast<std::size_t>(one.part)].draw(ImGui::GetContentRegionAvail());
    ImGui::EndChild();
    ImGui::PopID();
  }
}

}  // namespace

ImVec2 PartPlace::rest() const {
  return {size_.x, std::max(1.0f, begin_.y + size_.y - ImGui::GetCursorScreenPos().y)};
}

void PartPlace::fill() const {
  ImGui::SetCursorScreenPos(begin_);
  ImGui::Dummy(size_);
}

void draw_parts(const Look& look, int& tab, std::span<const PanelPart> parts, bool beside) {
  const std::vector<Page> pages = pages_of(parts, grid_for(look, ImGui::GetContentRegionAvail(), parts));
  const auto has_tab = [&](const Page& page) {
    return std::any_of(page.begin(), page.end(), [&](const Placed& one) { return one.part == tab; });
  };
  std::size_t shown =
      static_cast<std::size_t>(std::find_if(pages.begin(), pages.end(), has_tab) - pages.begin());
  if (shown == pages.size()) shown = 0;
  if (pages.size() > 1) {
    if (beside) {
      ImGui::SameLine(0, look.px(12));
      if (ImGui::GetContentRegionAvail().x < look.px(290)) ImGui::NewLine();
    }
    std::vector<std::string> names;
    for (const Page& page : pages) {
      names.emplace_back();
      for (const Placed& one : page)
        names.back()
            .append(names.back().empty() ? "" : ", ")
            .append(parts[static_cast<std::size_t>(one.part)].tab);
    }
    const std::vector<std::string_view> tabs(names.begin(), names.end());
    if (const auto picked = segmented(look, "tab", shown, tabs)) tab = pages[shown = *picked].front().part;
  }
  draw_page(look, pages[shown], parts);
}

bool pressable(const char* id, ImVec2 size) {
  return ImGui::InvisibleButton(id, size, ImGuiButtonFlags_EnableNav);
}

void fact_row(const Look& look, std::string_view words, std::string_view value, float width,
              std::string_view note) {
  const Palette& c = look.color();
  const float begin = ImGui::GetCursorPosX();
  const float value_width = text_size_of(look, TextRole::number, value).x;
  text_fitted(look, TextRole::body, c.dim, words, std::max(look.px(20), width - value_width - look.px(12)));
  if (!note.empty()) {
    ImGui::SameLine(0, look.px(8));
    const float room = begin + width - ImGui::GetCursorPosX() - value_width - look.px(16);
    if (room > look.px(40)) text_fitted(look, TextRole::caption, c.mute, note, room);
  }
  ImGui::SameLine(begin + width - value_width - look.px(4));
  text(look, TextRole::number, c.predicted, value);
}

}  // namespace app::gui
