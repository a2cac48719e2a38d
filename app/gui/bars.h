// The bars above and below the panels.
#pragma once
#include <imgui.h>

#include <string_view>

#include "app/gui/commands.h"
#include "app/gui/tabs.h"
#include "app/gui/view.h"

namespace app::gui {

inline constexpr float kTopBarHeight = 50, kStatusBarHeight = 28;  // points

// What the user looks at, and the two most frequent actions. Drawn into the window that is open.
void draw_top_bar(const PanelContext& context, Commands& commands);
// The open scenarios, below the top bar, where there are several. Returns the strip's height in pixels; 0
// where only one is open.
float draw_tab_strip(const PanelContext& context, const Tabs& tabs, float top);
// Where the numbers come from, and what is running. `undo` is what could be undone; empty: nothing. `toast`
// is a short message in its place, where it hides no panel's words; empty: none.
void draw_status_bar(const PanelContext& context, std::string_view undo, std::string_view toast);
// The toast over the lower edge of a panel that stands alone.
void draw_toast(ImDrawList& list, const Look& look, ImVec2 begin, ImVec2 size, std::string_view words);

}  // namespace app::gui
