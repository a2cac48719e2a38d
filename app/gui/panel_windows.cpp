#include "app/gui/panel_windows.h"

#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>

#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

// In points; the margin is around a panel that is maximised.
constexpr float kMargin = 8;

// Also the id that the layout in the settings hangs from.
constexpr const char* kDockspace = "desktop";

constexpr float kConfigureWidth = 316, kExplainWidth = 268, kOverviewHeight = 178;
constexpr float kWideEnoughForExplain = 1480, kWideEnoughForTwoColumns = 940, kTallEnoughForTwoRows = 800;
constexpr int kRightPanels = 2;  // Explain and Lessons, where they have a column of their own
// The least sizes of what is docked: below these a panel says nothing any more.
constexpr float kLeastWidth = 250, kLeastHeight = 150, kLeastConfigureWidth = 280;

bool is_wide(ImVec2 size, float scale) {
  return size.x / scale >= kWideEnoughForExplain;
}
bool has_two_columns(ImVec2 size, float scale) {
  return size.x / scale >= kWideEnoughForTwoColumns;
}
bool is_tall(ImVec2 size, float scale) {
  return size.y / scale >= kTallEnoughForTwoRows;
}
// Which of the shipped layouts a size asks for.
int layout_for(ImVec2 size, float scale) {
  return (is_wide(size, scale) ? 1 : 0) + (is_tall(size, scale) ? 2 : 0) +
         (has_two_columns(size, scale) ? 4 : 0);
}

std::string places_of_panels() {
  std::string places;
  for (const PanelEntry* panel : panels()) {
    const ImGuiWindow* window = ImGui::FindWindowByName(window_name(*panel).c_str());
    places += std::to_string(window ? window->DockId : 0) + ' ';
  }
  return places;
}

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

// One rounded card behind every docked panel (or set of tabs), drawn into the current window.
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

// The shipped layout, for the size at hand: where the window is too low for four panels in two rows they
// share tabs, where it is narrow Explain becomes a tab as well, and where it is narrower still there is one
// column beside Configure.
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
  const bool wide = is_wide(size, scale);
  if (wide)
    right =
        ImGui::DockBuilderSplitNode(centre, ImGuiDir_Right, kExplainWidth * scale / width, nullptr, &centre);
  top = ImGui::DockBuilderSplitNode(centre, ImGuiDir_Up, std::min(0.5f, kOverviewHeight * scale / size.y),
                                    nullptr, &centre);
  const bool two_columns = has_two_columns(size, scale);
  top_left = top_right = centre;
  if (two_columns) top_right = ImGui::DockBuilderSplitNode(centre, ImGuiDir_Right, 0.5f, nullptr, &top_left);
  const bool tall = is_tall(size, scale);
  dock(Dock::left, left);
  dock(Dock::top, top);
  if (tall) {
    bottom_left = ImGui::DockBuilderSplitNode(top_left, ImGuiDir_Down, 0.5f, nullptr, &top_left);
    bottom_right = two_columns
                       ? ImGui::DockBuilderSplitNode(top_right, ImGuiDir_Down, 0.5f, nullptr, &top_right)
                       : bottom_left;
    if (!two_columns) top_right = top_left;
  }
  dock(Dock::upper_left, top_left);
  dock(Dock::upper_right, top_right);
  dock(Dock::lower_left, tall ? bottom_left : top_left);
  dock(Dock::lower_right, tall ? bottom_right : top_right);
  dock(Dock::right, wide ? right : top_right);
  if (two_columns) select_tab(top_right, "roofline");
  select_tab(top_left, "memory");
  if (tall && two_columns) select_tab(bottom_right, "compare");
  if (tall) select_tab(bottom_left, "live");
  ImGui::DockBuilderFinish(dockspace);
}

// Where panels share tabs, the caption stands in what the tabs leave free.
void draw_caption_beside_tabs(const Look& look, const ImGuiTabBar& tabs, const std::string& caption) {
  const ImRect bar = tabs.BarRect;
  const float free = bar.GetWidth() - tabs.WidthAllTabs - look.px(24);
  if (free < look.px(90)) return;
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->PushClipRect(bar.Min, bar.Max, false);
  draw_text(list, look, TextRole::caption, {bar.Max.x - look.px(4), (bar.Min.y + bar.Max.y) / 2},
            look.color().mute, fitted(look, TextRole::caption, caption, free), {1, 0.5f});
  list->PopClipRect();
}

// Where there are more tabs than have room, all stand in a menu at the end of their row.
void offer_menu_of_tabs(ImGuiDockNode& node) {
  const ImGuiTabBar& tabs = *node.TabBar;
  const bool fits = tabs.WidthAllTabsIdeal <= tabs.BarRect.GetWidth();
  const ImGuiDockNodeFlags others = node.LocalFlags & ~ImGuiDockNodeFlags_NoWindowMenuButton;
  node.SetLocalFlags(others | (fits ? ImGuiDockNodeFlags_NoWindowMenuButton : 0));
}

// What is drawn in a window and its children, but for those that say why.
void grey_out(const ImGuiWindow& body) {
  constexpr float kLeft = 0.4f;
  for (ImGuiWindow* window : ImGui::GetCurrentContext()->Windows) {
    if (!window->Active || std::string_view(window->Name).find(kNotGreyed) != std::string_view::npos)
      continue;
    if (window != &body && !ImGui::IsWindowChildOf(window, const_cast<ImGuiWindow*>(&body), false, false))
      continue;
    for (ImDrawVert& vertex : window->DrawList->VtxBuffer) {
      const auto alpha = static_cast<float>(vertex.col >> IM_COL32_A_SHIFT & 255) * kLeft;
      vertex.col = (vertex.col & ~IM_COL32_A_MASK) | static_cast<ImU32>(alpha) << IM_COL32_A_SHIFT;
    }
  }
}

void draw_body(const PanelEntry& entry, Panel& panel, const PanelContext& context, bool with_title,
               bool with_caption) {
  if (!entry.bare && (with_title || with_caption))
    draw_panel_title(context.look, entry.title, with_caption ? panel.caption(context) : "", with_title);
  // For the keyboard all of a panel is one window.
  ImGui::BeginChild("body", {0, 0}, ImGuiChildFlags_NavFlattened);
  const ImGuiWindow& body = *ImGui::GetCurrentWindow();
  panel.draw(context);
  ImGui::EndChild();
  if (entry.of_prediction && !context.disagreement.empty()) grey_out(body);
}

// Its tab, too: ImGui selects that of the window with the focus alone, which another may have in this frame.
void bring_to_front(const std::string& name) {
  ImGui::SetWindowFocus(name.c_str());
  const ImGuiWindow* const window = ImGui::FindWindowByName(name.c_str());
  if (!window || !window->DockNode) return;
  window->DockNode->SelectedTabId = window->TabId;
  if (window->DockNode->TabBar) window->DockNode->TabBar->NextSelectedTabId = window->TabId;
}

}  // namespace

void PanelWindows::make(const PanelTools& tools) {
  for (const PanelEntry* entry : panels()) panels_.push_back({*entry, entry->make(tools)});
}

void PanelWindows::add_commands(Commands& commands, View& view, const std::function<bool()>& presents) {
  int number = 0;
  for (const PanelEntry* panel : panels()) {
    ++number;
    const std::string id = panel->id;
    // 1 to 9, then 0: as the keys lie.
    constexpr int kDigits = 10;
    const ImGuiKey digit =
        number > kDigits ? ImGuiKey_None : static_cast<ImGuiKey>(ImGuiKey_0 + number % kDigits);
    const ImGuiKeyChord with_shift = digit == ImGuiKey_None ? ImGuiKey_None : ImGuiMod_Shift | digit;
    commands.add({.id = "panel." + id,
                  .category = "Panels",
                  .label = panel->title,
                  .run =
                      [this, &view, panel, presents] {
                        if (presents()) {
                          view.maximised = panel->id;
                          return;
                        }
                        closed_.erase(panel->id);
                        view.maximised.clear();
                        bring_to_front(window_name(*panel));
                      },
                  .shortcut = digit,
                  .detail = [panel] { return std::string(panel->teaches); }});
    commands.add({.id = "maximise." + id,
                  .category = "Panels",
                  .label = std::string("Maximise ") + panel->title,
                  .run = [&view, id] { view.maximised = id; },
                  .shortcut = with_shift,
                  .in_menu = false});
  }
}

void PanelWindows::reset_layout() {
  closed_.clear();
  layout_is_old_ = true;
}

bool PanelWindows::open(const std::filesystem::path& file) {
  for (const Made& made : panels_) {
    if (!made.panel->open(file)) continue;
    closed_.erase(made.entry.id);
    opened_ = window_name(made.entry);
    return true;
  }
  return false;
}

std::vector<PanelFigures> PanelWindows::figures(const PanelContext& context, std::string_view panel) const {
  std::vector<PanelFigures> all;
  for (const Made& made : panels_) {
    if (!panel.empty() && made.entry.id != panel) continue;
    std::vector<Figure> figures = made.panel->figures(context);
    if (!figures.empty() || !panel.empty())
      all.push_back({made.entry.id, made.entry.title, made.panel->caption(context), std::move(figures)});
  }
  return all;
}

void PanelWindows::draw_dock(const Look& look, const View& view, ImVec2 size) {
  const ImGuiID dockspace = ImGui::GetID(kDockspace);
  // The user has moved a panel or a splitter.
  if (shipped_ && !places_.empty() && places_ != places_of_panels()) shipped_.reset();
  if (splits_.take_drag()) shipped_.reset();
  if (layout_is_old_ || (shipped_ && *shipped_ != layout_for(size, look.scale))) {
    layout_is_old_ = false;
    build_layout(dockspace, size, look.scale);
    splits_.forget();
    shipped_ = layout_for(size, look.scale);
    places_.clear();
  }
  const DockSplits::Least least = [&look, &view](const ImGuiDockNode& leaf) {
    ImVec2 size_of_leaf = {look.px(kLeastWidth), look.px(kLeastHeight)};
    for (const ImGuiWindow* window : leaf.Windows)
      for (const PanelEntry* panel : panels()) {
        if (window->ID != ImHashStr(window_name(*panel).c_str())) continue;
        if (panel->dock == Dock::left) size_of_leaf.x = look.px(kLeastConfigureWidth);
        if (panel->dock == Dock::top) size_of_leaf.y = look.px(kOverviewHeight);
        if (const auto room = view.room.find(panel->id); room != view.room.end())
          size_of_leaf = {std::max(size_of_leaf.x, look.px(room->second.x)),
                          std::max(size_of_leaf.y, look.px(room->second.y))};
      }
    return size_of_leaf;
  };
  // In the shipped layout the columns at the sides and the tiles are as wide and high as their type asks.
  DockSplits::Least wish;
  if (shipped_)
    wish = [&look](const ImGuiDockNode& leaf) {
      ImVec2 size_of_leaf = {0, 0};
      for (const ImGuiWindow* window : leaf.Windows)
        for (const PanelEntry* panel : panels()) {
          if (window->ID != ImHashStr(window_name(*panel).c_str())) continue;
          if (panel->dock == Dock::left) size_of_leaf.x = look.px(kConfigureWidth);
          if (panel->dock == Dock::right && leaf.Windows.Size <= kRightPanels)
            size_of_leaf.x = look.px(kExplainWidth);
          if (panel->dock == Dock::top) size_of_leaf.y = look.px(kOverviewHeight);
        }
      return size_of_leaf;
    };
  splits_.before(dockspace, size, least, wish);
  draw_card(ImGui::DockBuilderGetNode(dockspace), look);
  // Between cards: the gap itself.
  ImGui::PushStyleColor(ImGuiCol_Border, with_alpha(look.color().border, 0));
  ImGui::PushStyleColor(ImGuiCol_WindowBg, look.color().background);
  ImGui::DockSpace(dockspace, size, ImGuiDockNodeFlags_AutoHideTabBar);
  ImGui::PopStyleColor(2);
  splits_.after(dockspace);
}

void PanelWindows::draw(const PanelContext& context, const PanelContext& legal) {
  const PanelEntry* maximised = find_panel(context.view.maximised);
  for (const Made& made : panels_) {
    const PanelContext& given = made.entry.of_prediction ? legal : context;
    if (&made.entry == maximised) draw_maximised(made, given);
    if (!maximised && !closed_.count(made.entry.id)) draw_window(made, given);
  }
  // To the front, once it has its place.
  if (const ImGuiWindow* window = opened_.empty() ? nullptr : ImGui::FindWindowByName(opened_.c_str());
      window && window->DockNode) {
    ImGui::SetWindowFocus(opened_.c_str());
    opened_.clear();
  }
  if (shipped_ && places_.empty()) places_ = places_of_panels();
}

void PanelWindows::draw_window(const Made& made, const PanelContext& context) {
  const PanelEntry& panel = made.entry;
  const Look& look = context.look;
  const std::string name = window_name(panel);
  const ImGuiWindow* known = ImGui::FindWindowByName(name.c_str());
  // In the desktop's own dock, not in a floating one.
  const bool docked = known && known->DockNode && ImGui::DockNodeGetRootNode(known->DockNode)->IsDockSpace();
  bool open = true;
  ImGuiWindowFlags flags =
      ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse | ImGuiWindowFlags_NoCollapse |
      ImGuiWindowFlags_NoFocusOnAppearing;  // else the panel drawn last would hide those it shares tabs with
  const bool has_tab = docked && !known->DockNode->IsHiddenTabBar();
  // Docked, it stands on its node's card.
  ImGui::PushStyleColor(ImGuiCol_WindowBg, with_alpha(look.color().panel, docked ? 0.0f : 1.0f));
  ImGui::PushStyleColor(ImGuiCol_Border, with_alpha(look.color().border, docked ? 0.0f : 1.0f));
  // The corner by which a lone panel is undocked shows under the pointer only.
  ImGui::PushStyleColor(ImGuiCol_Button, with_alpha(look.color().panel, 0));
  ImGui::PushStyleColor(ImGuiCol_ButtonActive, with_alpha(look.color().panel, 0));
  if (panel.bare) ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(0, 0));
  ImGui::SetNextWindowSize({look.px(480), look.px(360)}, ImGuiCond_FirstUseEver);
  // A docked panel is closed by its command: a button in its tab would push its name aside.
  const bool visible = ImGui::Begin(name.c_str(), docked ? nullptr : &open, flags);
  if (panel.bare) ImGui::PopStyleVar();
  ImGui::PopStyleColor(4);
  if (visible) {
    if (ImGui::IsWindowFocused(ImGuiFocusedFlags_ChildWindows)) context.view.used_last = panel.id;
    const bool caption_in_tabs = has_tab && known->DockNode->TabBar;
    if (caption_in_tabs) {
      draw_caption_beside_tabs(look, *known->DockNode->TabBar, made.panel->caption(context));
      offer_menu_of_tabs(*known->DockNode);
    }
    draw_body(panel, *made.panel, context, docked && !has_tab, !caption_in_tabs);
  }
  ImGui::End();
  if (!open) closed_.insert(panel.id);
}

void PanelWindows::draw_maximised(const Made& made, const PanelContext& context) {
  const PanelEntry& panel = made.entry;
  const Look& look = context.look;
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  const float margin = std::floor(look.px(kMargin));
  ImGui::GetBackgroundDrawList()->AddRectFilled(
      viewport->Pos, {viewport->Pos.x + viewport->Size.x, viewport->Pos.y + viewport->Size.y},
      look.color().background);
  ImGui::SetNextWindowPos({viewport->Pos.x + margin, viewport->Pos.y + margin});
  ImGui::SetNextWindowSize({viewport->Size.x - 2 * margin, viewport->Size.y - 2 * margin});
  if (panel.bare) {
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(0, 0));
    ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 0);
  }
  ImGui::Begin("##maximised", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   (panel.bare ? ImGuiWindowFlags_NoBackground : 0) | ImGuiWindowFlags_NoDocking |
                   ImGuiWindowFlags_NoScrollWithMouse);
  ImGui::PopStyleVar(panel.bare ? 2 : 0);
  draw_body(panel, *made.panel, context, true, true);
  ImGui::End();
}

}  // namespace app::gui
