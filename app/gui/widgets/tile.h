// A number to be read from the back of a lecture hall, and what stands below it.
#pragma once
#include <imgui.h>

#include <string>
#include <vector>

#include "app/gui/theme.h"

namespace app::gui {

struct BarPart {
  double value = 0;
  ImU32 color = 0;
};

struct Tile {
  const char* id;
  std::string title;
  std::string value, unit;
  std::string of = {};            // after the unit, where there is room: "of 80 GiB"
  std::vector<BarPart> bar = {};  // empty: none
  double bar_limit = 0;           // what the whole bar stands for; parts past it are hatched
  std::string line = {};          // below the number
  std::string short_line = {};    // the same where there is no room for it
  ImU32 line_color = 0;
  std::string second = {}, short_second = {};  // below the line, in its colour
  std::string measured = {};                   // beside it, in the measured colour
  std::string action = {};                     // what a click does, as a tooltip
  bool is_lit = false;                         // it has just changed
  std::string short_value = {};                // in place of a value that leaves its unit no room
};

// True when it was clicked.
bool draw_tile(const Look& look, const Tile& tile, ImVec2 size, bool selected);

// Parts side by side in a rounded track.
void draw_bar(ImDrawList* list, const Look& look, ImVec2 least, ImVec2 most,
              const std::vector<BarPart>& parts, double limit);

// A card in the current window, at the cursor.
void draw_card_frame(const Look& look, ImVec2 least, ImVec2 most, ImU32 border, bool lit = false);

}  // namespace app::gui
