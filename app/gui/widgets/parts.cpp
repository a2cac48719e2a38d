#include "app/gui/widgets/parts.h"

#include <algorithm>

#include "app/gui/widgets/text.h"

namespace app::gui {

ImVec2 PartPlace::rest() const {
  return {size_.x, std::max(1.0f, begin_.y + size_.y - ImGui::GetCursorScreenPos().y)};
}

void PartPlace::fill() const {
  ImGui::SetCursorScreenPos(begin_);
  ImGui::Dummy(size_);
}

void fact_row(const Look& look, std::string_view words, std::string_view value, float width,
              std::string_view note) {
  const Palette& c = look.color();
  const float begin = ImGui::GetCursorPosX();
  const float value_width = text_size_of(look, TextRole::number, value).x;
  text(look, TextRole::body, c.dim, words);
  if (!note.empty()) {
    ImGui::SameLine(0, look.px(8));
    const float room = begin + width - ImGui::GetCursorPosX() - value_width - look.px(16);
    if (room > look.px(40)) text_fitted(look, TextRole::caption, c.mute, note, room);
  }
  ImGui::SameLine(begin + width - value_width - look.px(4));
  text(look, TextRole::number, c.predicted, value);
}

}  // namespace app::gui
