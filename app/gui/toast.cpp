#include "app/gui/toast.h"

#include <imgui.h>

#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

constexpr double kSeconds = 3;

}  // namespace

void Toast::say(std::string words) {
  words_ = std::move(words);
  until_ = ImGui::GetTime() + kSeconds;
}

std::optional<double> Toast::changes_in() const {
  const double left = until_ - ImGui::GetTime();
  return left > 0 ? std::optional(left) : std::nullopt;
}

void Toast::draw(const Look& look) const {
  if (words_.empty() || ImGui::GetTime() > until_) return;
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  const ImVec2 size = text_size_of(look, TextRole::body, words_);
  const ImVec2 padding = {look.px(16), look.px(10)};
  const ImVec2 most = {viewport->Pos.x + viewport->Size.x / 2 + size.x / 2 + padding.x,
                       viewport->Pos.y + viewport->Size.y - look.px(48)};
  const ImVec2 least = {most.x - size.x - 2 * padding.x, most.y - size.y - 2 * padding.y};
  ImDrawList* list = ImGui::GetForegroundDrawList();
  list->AddRectFilled(least, most, look.color().raised, look.px(8));
  list->AddRect(least, most, look.color().border, look.px(8));
  draw_text(list, look, TextRole::body, {least.x + padding.x, least.y + padding.y}, look.color().text,
            words_);
}

}  // namespace app::gui
