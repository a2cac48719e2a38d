#include "app/gui/widgets/reasons.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"
#include "app/lesson/field_words.h"
#include "sim/format.h"

namespace app::gui {

void draw_reasons(const Look& look, const std::map<std::string, std::int64_t>& refused, ImVec2 size) {
  const PartPlace place(size);
  const Palette& c = look.color();
  std::vector<std::pair<std::int64_t, std::string>> reasons;
  for (const auto& [reason, count] : refused)
    if (count > 0) reasons.emplace_back(count, reason);
  std::sort(reasons.rbegin(), reasons.rend());
  const float line = look.px(19), names = std::min(look.px(140), size.x * 0.45f), numbers = look.px(52);
  ImDrawList* list = ImGui::GetWindowDrawList();
  for (const auto& [count, reason] : reasons) {
    if (place.rest().y < line) break;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float middle = at.y + line / 2;
    draw_text(list, look, TextRole::caption, {at.x, middle}, c.text,
              fitted(look, TextRole::caption, lesson::field_words(reason), names - look.px(6)), {0, 0.5f});
    const double share = static_cast<double>(count) / static_cast<double>(reasons.front().first);
    const float bar = (size.x - names - numbers) * static_cast<float>(share);
    list->AddRectFilled({at.x + names, middle - look.px(5)},
                        {at.x + names + std::max(1.0f, bar), middle + look.px(5)}, with_alpha(c.mute, 0.7f),
                        look.px(2));
    draw_text(list, look, TextRole::number, {at.x + size.x, middle}, c.dim,
              sim::format_short(static_cast<double>(count)), {1, 0.5f});
    ImGui::Dummy({size.x, line});
    ImGui::SetCursorScreenPos({at.x, at.y + line});
  }
  place.fill();
}

}  // namespace app::gui
