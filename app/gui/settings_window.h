// The settings: how the desktop looks, and the key of every command.
#pragma once
#include <optional>
#include <string>

#include "app/gui/commands.h"
#include "app/gui/theme.h"
#include "app/gui/view.h"

namespace app::gui {

class SettingsWindow {
 public:
  // Opens where the view asks for it. `scale`: the user's own.
  void draw(const Look& look, float scale, Commands& commands, View& view, Requests& requests);

 private:
  // A key that was pressed for a command while others have it.
  struct Wanted {
    std::string id;
    ImGuiKeyChord chord;
  };
  void draw_look(const Look& look, float scale, const View& view, Requests& requests) const;
  void draw_keys(const Look& look, Commands& commands);
  void draw_row(const Look& look, Commands& commands, const Command& command);
  void draw_conflict(const Look& look, Commands& commands);
  void listen(Commands& commands);

  std::size_t page_ = 0;
  std::string filter_;
  std::string asking_;            // the id of the command whose new key is waited for; empty: none
  std::optional<Wanted> wanted_;  // until the user says who is to have the key
};

}  // namespace app::gui
