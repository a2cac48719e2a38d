// Where panels are docked, and the cards that they are drawn on.
#pragma once
#include <imgui.h>

#include "app/gui/theme.h"

namespace app::gui {

// The shipped layout, for the size at hand: where the window is too low for four panels in two rows they
// share tabs, where it is narrow Explain becomes a tab as well.
void build_layout(ImGuiID dockspace, ImVec2 size, float scale);

// One rounded card behind every docked panel (or set of tabs), drawn into the current window.
void draw_cards(ImGuiID dockspace, const Look& look);

}  // namespace app::gui
