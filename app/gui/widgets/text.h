// Text in the look's roles, and where it stands.
#pragma once
#include <imgui.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/theme.h"

namespace app::gui {

enum class TextRole { body, caption, title, heading, tile, number };

// The role's font from here to the end of the scope.
class TextScope {
 public:
  TextScope(const Look& look, TextRole role);
  ~TextScope();
  TextScope(const TextScope&) = delete;
  TextScope& operator=(const TextScope&) = delete;
};

ImVec2 text_size_of(const Look& look, TextRole role, std::string_view text);

void text(const Look& look, TextRole role, ImU32 color, std::string_view words);
void text_wrapped(const Look& look, TextRole role, ImU32 color, std::string_view words);
// Right edge at the end of the available width (or of the cell).
void text_right(const Look& look, TextRole role, ImU32 color, std::string_view words);
// Shortened with an ellipsis to the width; the whole of it as a tooltip.
void text_fitted(const Look& look, TextRole role, ImU32 color, std::string_view words, float width);
std::string fitted(const Look& look, TextRole role, std::string_view words, float width);
// The same with the ellipsis in the middle: of names that differ in their ends.
std::string fitted_name(const Look& look, TextRole role, std::string_view name, float width);

// The height of as many whole lines as fit into `height`, one at least: what scrolls to its end in such a
// room cuts no line, where there is no spacing between its items.
float whole_lines(const Look& look, TextRole role, float height);

// On a draw list; `align` is the share of the text's own size that lies left of / above the position.
void draw_text(ImDrawList* list, const Look& look, TextRole role, ImVec2 position, ImU32 color,
               std::string_view words, ImVec2 align = {0, 0});

// "61.4 GiB" -> {"61.4", "GiB"}.
struct ValueAndUnit {
  std::string value, unit;
};
ValueAndUnit split_unit(std::string_view text);

// The words with no-break spaces: a line break must not part a number from its unit.
std::string unbroken(std::string_view words);

// A word on a tinted plate: provenance, states.
void badge(const Look& look, ImU32 color, std::string_view words);

// The columns of a table that are shown beside a first one of at least this width: others go in the order
// in which they can be missed. Widths in pixels, with padding.
struct Droppable {
  float width;
  int rank;  // the lowest goes first
};
std::vector<bool> columns_beside(float least_first, std::span<const Droppable> others, float room);

// A panel's first row: its title (unless a tab already says it) and, at the right, of what and in which unit.
void draw_panel_title(const Look& look, std::string_view title, std::string_view caption, bool with_title);

}  // namespace app::gui
