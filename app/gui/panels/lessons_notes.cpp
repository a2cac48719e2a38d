#include "app/gui/panels/lessons_notes.h"

#include <imgui_internal.h>

#include "app/gui/panels/lessons_words.h"

namespace app::gui {
namespace {

// Whether the room sees what is shown there.
bool is_inside(const ImGuiPlatformMonitor& monitor, const ImGuiViewport& main) {
  const ImVec2 middle = {main.Pos.x + main.Size.x / 2, main.Pos.y + main.Size.y / 2};
  return middle.x >= monitor.MainPos.x && middle.x < monitor.MainPos.x + monitor.MainSize.x &&
         middle.y >= monitor.MainPos.y && middle.y < monitor.MainPos.y + monitor.MainSize.y;
}

}  // namespace

void draw_notes(const ContextWith<LessonsState>& context, const LessonView& view) {
  const Look& look = context.look;
  const ImGuiViewport& main = *ImGui::GetMainViewport();
  ImVec2 corner = {main.Pos.x + main.Size.x - look.px(20), main.Pos.y + main.Size.y - look.px(60)};
  if (ImGui::GetIO().ConfigFlags & ImGuiConfigFlags_ViewportsEnable) {
    ImGuiWindowClass own;
    own.ViewportFlagsOverrideSet = ImGuiViewportFlags_NoAutoMerge;
    own.ViewportFlagsOverrideClear = ImGuiViewportFlags_NoDecoration;
    ImGui::SetNextWindowClass(&own);
    for (const ImGuiPlatformMonitor& monitor : ImGui::GetPlatformIO().Monitors)
      if (!is_inside(monitor, main))
        corner = {monitor.WorkPos.x + monitor.WorkSize.x - look.px(20),
                  monitor.WorkPos.y + monitor.WorkSize.y - look.px(60)};
  }
  ImGui::SetNextWindowSize({main.Size.x * .36f, 0}, ImGuiCond_Appearing);
  ImGui::SetNextWindowPos(corner, ImGuiCond_Appearing, {1, 1});
  ImGui::PushStyleColor(ImGuiCol_WindowBg, look.color().raised);
  if (ImGui::Begin("For the lecturer", &context.state.notes,
                   ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoCollapse |
                       ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoFocusOnAppearing)) {
    for (const lesson::ShownParagraph& note : view.shown.notes) {
      draw_words(look, note.words);
      ImGui::Dummy({0, look.px(4)});
    }
    ImGui::BringWindowToDisplayFront(ImGui::GetCurrentWindow());
  }
  ImGui::End();
  ImGui::PopStyleColor();
}

}  // namespace app::gui
