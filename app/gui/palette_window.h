// Windows that stand over the desktop: the command palette and the sheet of shortcuts, both drawn from the
// commands.
#pragma once
#include "app/gui/commands.h"
#include "app/gui/theme.h"
#include "app/gui/view.h"

namespace app::gui {

void draw_palette(const Look& look, const Commands& commands, View& view, Requests& requests);
void draw_shortcut_sheet(const Look& look, const Commands& commands, View& view);

}  // namespace app::gui
