#include "app/gui/presenter_screen.h"

#include <imgui_internal.h>

#include "app/gui/commands.h"

namespace app::gui {
namespace {

// In points, for the back of a room.
constexpr float kDot = 5, kRing = 16, kRingWeight = 2;
constexpr double kRingSeconds = .6;

bool is_button_pressed() {
  for (int button = 0; button < ImGuiMouseButton_COUNT; ++button)
    if (ImGui::IsMouseClicked(button)) return true;
  return false;
}

bool is_anything_held() {
  for (int key = ImGuiKey_NamedKey_BEGIN; key < ImGuiKey_NamedKey_END; ++key)
    if (ImGui::IsKeyDown(static_cast<ImGuiKey>(key))) return true;
  return false;
}

// A window, so that nothing beneath it is clicked or typed into.
void cover_with_black() {
  const ImGuiViewport& screen = *ImGui::GetMainViewport();
  ImGui::SetNextWindowPos(screen.Pos);
  ImGui::SetNextWindowSize(screen.Size);
  ImGui::SetNextWindowViewport(screen.ID);
  ImGui::PushStyleColor(ImGuiCol_WindowBg, IM_COL32_BLACK);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, 0);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 0);
  ImGui::Begin("##black", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoNav);
  ImGui::BringWindowToDisplayFront(ImGui::GetCurrentWindow());
  ImGui::End();
  ImGui::PopStyleVar(2);
  ImGui::PopStyleColor();
  ImGui::SetMouseCursor(ImGuiMouseCursor_None);
}

}  // namespace

bool PresenterScreen::takes_input() {
  if (!black_) return false;
  ends_ = ends_ || pressed_chord() || is_button_pressed();
  // Held, it would still move what is beneath.
  if (ends_ && !is_anything_held()) black_ = ends_ = false;
  return true;
}

bool PresenterScreen::draw(const Look& look, bool still) {
  if (black_) {
    rings_.clear();
    cover_with_black();
    return false;
  }
  ImDrawList& list = *ImGui::GetForegroundDrawList(ImGui::GetMainViewport());
  const bool moves = draw_rings(list, look, still);
  if (pointer_ && ImGui::IsMousePosValid()) {
    const ImVec2 at = ImGui::GetMousePos();
    list.AddCircleFilled(at, look.px(kDot) * 2, with_alpha(look.color().bad, .3f));
    list.AddCircleFilled(at, look.px(kDot), look.color().bad);
    ImGui::SetMouseCursor(ImGuiMouseCursor_None);
  }
  return moves;
}

bool PresenterScreen::draw_rings(ImDrawList& list, const Look& look, bool still) {
  const double now = ImGui::GetTime();
  const ImU32 color = look.color().bad;
  if (still) {
    if (ImGui::IsMouseDown(ImGuiMouseButton_Left))
      list.AddCircle(ImGui::GetMousePos(), look.px(kRing), color, 0, look.px(kRingWeight));
    return false;
  }
  if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) rings_.push_back({ImGui::GetMousePos(), now});
  std::erase_if(rings_, [now](const Ring& ring) { return now - ring.began >= kRingSeconds; });
  for (const Ring& ring : rings_) {
    const auto share = static_cast<float>((now - ring.began) / kRingSeconds);
    list.AddCircle(ring.middle, look.px(kRing) * (.3f + .7f * share), with_alpha(color, 1 - share), 0,
                   look.px(kRingWeight));
  }
  return !rings_.empty();
}

void PresenterScreen::end() {
  black_ = ends_ = false;
  rings_.clear();
}

}  // namespace app::gui
