// What the room sees over the presented panel: a pointer, rings where it is clicked, or a black
// screen.
#pragma once
#include <imgui.h>

#include <vector>

#include "app/gui/theme.h"

namespace app::gui {

class PresenterScreen {
 public:
  void show_black() { black_ = true; }
  bool is_black() const { return black_; }
  void toggle_pointer() { pointer_ = !pointer_; }
  bool has_pointer() const { return pointer_; }

  // The first press of a key or a button while the screen is black gives the picture back, once it is
  // released, and does nothing else. True: it is black in this frame.
  bool takes_input();
  // On top of all that is drawn in the frame. `still`: rings stand where a button is held, and do not spread.
  // True: something goes on moving.
  bool draw(const Look& look, bool still);
  // Ends a presentation: the next one begins without a black screen or rings; the pointer stays on or off.
  void end();

 private:
  struct Ring {
    ImVec2 middle;
    double began = 0;
  };
  bool draw_rings(ImDrawList& list, const Look& look, bool still);

  bool black_ = false, pointer_ = false;
  bool ends_ = false;  // what was pressed is not released yet
  std::vector<Ring> rings_;
};

}  // namespace app::gui
