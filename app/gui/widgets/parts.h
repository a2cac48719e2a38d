// Parts of a panel that stand beside each other: each has a place, and fills it.
#pragma once
#include <imgui.h>

#include <functional>
#include <span>
#include <string_view>

#include "app/gui/theme.h"

namespace app::gui {

// The place of a part, from where the cursor is when it begins.
class PartPlace {
 public:
  explicit PartPlace(ImVec2 size) : begin_(ImGui::GetCursorScreenPos()), size_(size) {}

  ImVec2 size() const { return size_; }
  // From the cursor down to the end.
  ImVec2 rest() const;
  // Takes the whole place, even if less of it was used.
  void fill() const;

 private:
  ImVec2 begin_, size_;
};

// Parts of a panel in as many columns (three at most) and rows (two at most) as have room. What does not fit
// on one page has pages, by tabs.
struct PanelPart {
  std::string_view tab;
  std::function<void(ImVec2 size)> draw;
  int columns = 1;
};
// `tab`: a part of the page that is shown. `beside`: the tabs stand beside the last item where that leaves
// them room, else below it.
void draw_parts(const Look& look, int& tab, std::span<const PanelPart> parts, bool beside = false);

// A button without a face, for what draws its own. The keyboard reaches it, and marks it.
bool pressable(const char* id, ImVec2 size);

// A number at the right end of what it is; a note between them, where there is room for it.
void fact_row(const Look& look, std::string_view words, std::string_view value, float width,
              std::string_view note = {});

}  // namespace app::gui
