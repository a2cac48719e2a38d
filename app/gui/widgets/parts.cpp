#include "app/gui/widgets/parts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/text.h"

namespace app::gui {

ImVec2 PartPlace::rest() const {
  return {size_.x, std::max(1.0f, begin_.y + size_.y - ImGui::GetCursorScreenPos().y)};
}

void PartPlace::fill() const {
  ImGui::SetCursorScreenPos(begin_);
  ImGui::Dummy(size_);
}

void draw_parts(const Look& look, int& tab, std::span<const PanelPart> parts, bool beside) {
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const auto draw = [](const PanelPart& part, ImVec2 size) {
    if (ImGui::BeginChild("part", size, ImGuiChildFlags_NavFlattened))
      part.draw(ImGui::GetContentRegionAvail());
    ImGui::EndChild();
  };
  if (room.x >= look.px(1000) && room.y >= look.px(520)) {
    constexpr int kColumns = 3;
    const float gap = look.px(16), width = std::floor((room.x - 2 * gap) / kColumns);
    const float height = std::floor((room.y - gap) / 2);
    int column = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (column % kColumns > 0) ImGui::SameLine(0, gap);
      if (column == kColumns)
        ImGui::SetCursorPosY(ImGui::GetCursorPosY() + gap - ImGui::GetStyle().ItemSpacing.y);
      ImGui::PushID(static_cast<int>(i));
      draw(parts[i], {width + static_cast<float>(parts[i].columns - 1) * (width + gap), height});
      ImGui::PopID();
      column += parts[i].columns;
    }
    return;
  }
  if (beside) {
    ImGui::SameLine(0, look.px(12));
    if (ImGui::GetContentRegionAvail().x < look.px(290)) ImGui::NewLine();
  }
  std::vector<std::string_view> tabs;
  for (const PanelPart& part : parts) tabs.push_back(part.tab);
  if (const auto picked = segmented(look, "tab", static_cast<std::size_t>(tab), tabs))
    tab = static_cast<int>(*picked);
  draw(parts[static_cast<std::size_t>(tab)], {0, 0});
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
