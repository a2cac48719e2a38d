// Windows that stand over the desktop: the command palette and the sheet of shortcuts, both drawn from the
// commands, and what is said for a moment.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "app/gui/commands.h"
#include "app/gui/theme.h"
#include "app/gui/view.h"

namespace app::gui {

void draw_palette(const Look& look, const Commands& commands, View& view, Requests& requests);
void draw_shortcut_sheet(const Look& look, const Commands& commands, View& view);

// A sentence for a few seconds: "Copied".
class Toast {
 public:
  void say(std::string words);
  // Seconds until it goes, if it is shown.
  std::optional<double> changes_in() const;
  std::string_view words() const;  // empty: none is shown

 private:
  std::string words_;
  double until_ = 0;
};

}  // namespace app::gui
