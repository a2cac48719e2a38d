#include "app/gui/panels/lessons_words.h"

#include <algorithm>
#include <cctype>

#include "app/gui/widgets/text.h"

namespace app::gui {

void draw_words(const Look& look, const lesson::ShownWords& words, TextRole role) {
  const Palette& c = look.color();
  if (std::ranges::all_of(words, [](const auto& span) { return span.kind == lesson::Span::Kind::plain; }))
    return text_wrapped(look, role, c.text, lesson::plain(words));
  const float right = ImGui::GetCursorScreenPos().x + ImGui::GetContentRegionAvail().x;
  const float space = text_size_of(look, role, " ").x;
  bool first = true, gap = false;
  // Its lines stand as close as those of plain text.
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {ImGui::GetStyle().ItemSpacing.x, look.px(1)});
  for (const lesson::ShownSpan& span : words) {
    const TextRole shown = span.kind == lesson::Span::Kind::bold   ? TextRole::title
                           : span.kind == lesson::Span::Kind::code ? TextRole::number
                                                                   : role;
    const ImU32 color = span.kind == lesson::Span::Kind::value ? c.predicted : c.text;
    // A number stays with its unit.
    std::string_view rest = span.words;
    while (!rest.empty()) {
      if (rest.front() == ' ') {
        gap = true;
        rest.remove_prefix(1);
        continue;
      }
      const std::size_t end =
          span.kind == lesson::Span::Kind::value ? rest.size() : std::min(rest.find(' '), rest.size());
      const std::string word(rest.substr(0, end));
      rest.remove_prefix(end);
      const float before = gap ? space : 0;
      // From where the last word ended: its width was rounded.
      if (!first && ImGui::GetItemRectMax().x + before + text_size_of(look, shown, word).x <= right)
        ImGui::SameLine(0, before);
      text(look, shown, color, word);
      first = gap = false;
    }
  }
  ImGui::PopStyleVar();
  ImGui::Dummy({0, 0});  // and what follows as far from it as from plain text
}

std::string title_of(lesson::Tier tier) {
  std::string name(lesson::kTiers[static_cast<std::size_t>(tier)]);
  name.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(name.front())));
  return name;
}

}  // namespace app::gui
