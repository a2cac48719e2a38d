// The row of tabs: which scenarios are open, and which one is shown.
#include <algorithm>
#include <cmath>

#include "app/gui/bars.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

// Points.
constexpr float kHeight = 34, kMargin = 8, kGap = 4, kWidest = 260, kPadding = 10, kCross = 9, kRounding = 5;

// A button of four sides: what is drawn on it is the caller's.
struct Pressed {
  bool pressed = false, hovered = false, middle = false;
};
Pressed button(const char* id, ImVec2 at, ImVec2 size) {
  ImGui::SetCursorScreenPos(at);
  Pressed state;
  state.pressed = pressable(id, size);
  state.hovered = ImGui::IsItemHovered() || ImGui::IsItemFocused();
  state.middle = ImGui::IsItemHovered() && ImGui::IsMouseClicked(ImGuiMouseButton_Middle);
  return state;
}

void draw_cross(ImDrawList* list, const Look& look, ImVec2 centre, ImU32 color) {
  const float half = look.px(kCross) / 2.6f;
  list->AddLine({centre.x - half, centre.y - half}, {centre.x + half, centre.y + half}, color, look.px(1.3f));
  list->AddLine({centre.x - half, centre.y + half}, {centre.x + half, centre.y - half}, color, look.px(1.3f));
}

}  // namespace

float draw_tab_strip(const PanelContext& context, const Tabs& tabs, float top) {
  if (tabs.count() < 2) return 0;
  const Look& look = context.look;
  const Palette& c = look.color();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 begin = ImGui::GetWindowPos();
  const float height = std::floor(look.px(kHeight)), side = std::floor(height - look.px(kGap));
  const float room = ImGui::GetWindowSize().x - look.px(2 * kMargin) - side;
  const float width = std::floor(std::min(look.px(kWidest), room / static_cast<float>(tabs.count())));
  const ImVec2 size = {width - look.px(kGap), side};
  float x = begin.x + look.px(kMargin);
  const float y = std::floor(begin.y + top + look.px(kGap));
  ImGui::PushID("tabs");
  for (std::size_t i = 0; i < tabs.count(); ++i, x += width) {
    const bool shown = i == tabs.index();
    const std::string number = std::to_string(i + 1), name = tabs.name(i);
    const ImVec2 most = {x + size.x, y + size.y};
    // Where a tab is narrow, the cross is on the one that is shown alone.
    const bool has_cross = shown || size.x > look.px(90);
    const float cross_width = has_cross ? look.px(kCross + kPadding) : 0;
    // The tab, not its place: a drag goes on where it was moved to.
    ImGui::PushID(tabs.at(i).id);
    const Pressed tab = button("tab", {x, y}, {size.x - cross_width, size.y});
    const float pointer = ImGui::GetMousePos().x;
    const bool dragged = ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left);
    if (tab.hovered && !dragged) ImGui::SetItemTooltip("%s", name.c_str());
    // Shown from the press on, so that it is the one that is moved.
    if (ImGui::IsItemActivated() && !shown) context.invoke("tab.show." + number);
    if (dragged && shown && pointer < x) context.invoke("tab.move_left");
    if (dragged && shown && pointer > x + width) context.invoke("tab.move_right");
    const Pressed cross =
        has_cross ? button("close", {most.x - cross_width, y}, {cross_width, size.y}) : Pressed{};
    ImGui::PopID();
    const ImU32 plate = shown         ? mix(c.raised, c.predicted, 0.28f)
                        : tab.hovered ? mix(c.raised, c.text, 0.08f)
                                      : c.panel;
    list->AddRectFilled({x, y}, most, plate, look.px(kRounding));
    list->AddRect({x, y}, most, c.border, look.px(kRounding), 0, std::max(1.0f, std::floor(look.scale)));
    const std::string words = fitted(look, TextRole::body, name,
                                     size.x - look.px(kPadding) - std::max(cross_width, look.px(kPadding)));
    draw_text(list, look, TextRole::body, {x + look.px(kPadding), y + size.y / 2}, shown ? c.text : c.dim,
              words, {0, 0.5f});
    if (has_cross)
      draw_cross(list, look, {most.x - look.px(kPadding) - look.px(kCross) / 2 + look.px(2), y + size.y / 2},
                 cross.hovered ? c.text : c.mute);
    if (cross.pressed || tab.middle)
      context.invoke("tab.close=" + number);
    else if (tab.pressed)
      context.invoke("tab.show." + number);
  }
  if (tabs.count() < Tabs::kMost) {
    const Pressed plus = button("new", {x, y}, {side, side});
    if (plus.hovered) ImGui::SetItemTooltip("New tab");
    const ImU32 color = plus.hovered ? c.text : c.mute;
    const ImVec2 middle = {std::floor(x + side / 2), std::floor(y + side / 2)};
    const float half = look.px(5);
    list->AddLine({middle.x - half, middle.y}, {middle.x + half, middle.y}, color, look.px(1.4f));
    list->AddLine({middle.x, middle.y - half}, {middle.x, middle.y + half}, color, look.px(1.4f));
    if (plus.pressed) context.invoke("tab.new");
  }
  ImGui::PopID();
  return height;
}

}  // namespace app::gui
