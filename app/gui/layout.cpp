#include "app/gui/layout.h"

#include <imgui_internal.h>

#include <algorithm>

#include "app/gui/panels/panels.h"

namespace app::gui {
namespace {

// In points.
constexpr float kConfigureWidth = 316, kExplainWidth = 268, kOverviewHeight = 178;
constexpr float kWideEnoughForExplain = 1480, kTallEnoughForTwoRows = 800;

void dock(Dock place, ImGuiID node) {
  for (const PanelEntry* panel : panels())
    if (panel->dock == place) ImGui::DockBuilderDockWindow(window_name(*panel).c_str(), node);
}

void select_tab(ImGuiID node, const char* id) {
  // A window's tab is called by this hash (ImGuiWindow::TabId), also before the window was ever drawn.
  const ImGuiID tab = ImHashStr("#TAB", 0, ImHashStr(window_name(*find_panel(id)).c_str()));
  if (ImGuiDockNode* n = ImGui::DockBuilderGetNode(node)) n->SelectedTabId = tab;
}

bool is_bare(const ImGuiWindow& window) {
  return std::any_of(panels().begin(), panels().end(), [&](const PanelEntry* panel) {
    return panel->bare && window.ID == ImHashStr(window_name(*panel).c_str());
  });
}

void draw_card(const ImGuiDockNode* node, const Look& look) {
  if (!node || !node->IsVisible) return;
  if (node->IsSplitNode()) {
    draw_card(node->ChildNodes[0], look);
    draw_card(node->ChildNodes[1], look);
    return;
  }
  if (node->Windows.Size == 0 || (node->Windows.Size == 1 && is_bare(*node->Windows[0]))) return;
  const ImVec2 end = {node->Pos.x + node->Size.x, node->Pos.y + node->Size.y};
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float rounding = ImGui::GetStyle().WindowRounding;
  list->AddRectFilled(node->Pos, end, look.color().panel, rounding);
  list->AddRect(node->Pos, end, look.color().border, rounding, 0, ImGui::GetStyle().WindowBorderSize);
}

}  // namespace

void build_layout(ImGuiID dockspace, ImVec2 size, float scale) {
  ImGui::DockBuilderRemoveNode(dockspace);
  ImGui::DockBuilderAddNode(dockspace, ImGuiDockNodeFlags_DockSpace);
  ImGui::DockBuilderSetNodeSize(dockspace, size);
  // Now, so that the nodes split from it hide the tab bar of a lone panel from the start.
  ImGui::DockBuilderGetNode(dockspace)->SharedFlags = ImGuiDockNodeFlags_AutoHideTabBar;
  ImGuiID left = 0, right = 0, top = 0, top_left = 0, top_right = 0, bottom_left = 0, bottom_right = 0;
  ImGuiID centre = dockspace;
  float width = size.x;
  left = ImGui::DockBuilderSplitNode(centre, ImGuiDir_Left, std::min(0.4f, kConfigureWidth * scale / width),
                                     nullptr, &centre);
  width -= kConfigureWidth * scale;
  const bool wide = size.x / scale >= kWideEnoughForExplain;
  if (wide)
    right =
        ImGui::DockBuilderSplitNode(centre, ImGuiDir_Right, kExplainWidth * scale / width, nullptr, &centre);
  top = ImGui::DockBuilderSplitNode(centre, ImGuiDir_Up, std::min(0.5f, kOverviewHeight * scale / size.y),
                                    nullptr, &centre);
  top_right = ImGui::DockBuilderSplitNode(centre, ImGuiDir_Right, 0.5f, nullptr, &top_left);
  const bool tall = size.y / scale >= kTallEnoughForTwoRows;
  dock(Dock::left, left);
  dock(Dock::top, top);
  if (tall) {
    bottom_left = ImGui::DockBuilderSplitNode(top_left, ImGuiDir_Down, 0.5f, nullptr, &top_left);
    bottom_right = ImGui::DockBuilderSplitNode(top_right, ImGuiDir_Down, 0.5f, nullptr, &top_right);
  }
  dock(Dock::upper_left, top_left);
  dock(Dock::upper_right, top_right);
  dock(Dock::lower_left, tall ? bottom_left : top_left);
  dock(Dock::lower_right, tall ? bottom_right : top_right);
  dock(Dock::right, wide ? right : top_right);
  select_tab(top_left, "memory");
  select_tab(top_right, "roofline");
  if (tall) select_tab(bottom_left, "live");
  if (tall) select_tab(bottom_right, "compare");
  ImGui::DockBuilderFinish(dockspace);
}

void draw_cards(ImGuiID dockspace, const Look& look) {
  draw_card(ImGui::DockBuilderGetNode(dockspace), look);
}

}  // namespace app::gui
