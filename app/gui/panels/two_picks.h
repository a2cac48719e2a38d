// What both searches of the planner show alike: two candidates picked from a table, what each spends its time
// on, and the places of their parts.
#pragma once
#include <imgui.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "app/gui/theme.h"
#include "sim/units.h"

namespace app::gui {

using Picks = std::array<std::optional<std::int64_t>, 2>;  // candidates

// The first click picks one, the next another to compare it with; on a pick, lets it go.
void toggle_pick(Picks& picks, std::int64_t candidate);

ImU32 pick_color(const Look& look, std::size_t pick);

// Title of the comparison: which two they are.
void picks_title(const Look& look, const Picks& picks);

// Begins a candidate's row of a table: it is picked by a click, and marked where it is. The first two columns
// are the mark and `words`.
void candidate_row(const Look& look, Picks& picks, std::int64_t candidate, std::string_view words);

// One of the two by its words; true when its button is pressed.
bool apply_row(const Look& look, std::size_t pick, const std::string& words, float width);

// A part of the time of each pick, as bars below each other; `most` is as long as there is room.
struct BarsStyle {
  float names, line, top;  // pixels: width of the names; height of the row, and above its first bar
};
void time_bars(const Look& look, std::string_view part, std::span<const sim::Seconds> of_picks,
               sim::Seconds most, float width, BarsStyle style);

// Controls at the left and the rest beside them where there is room; else one part at a time, by tabs.
// `scatter` takes this share of the height. Without `any`, `hint` stands for all but the controls.
struct PlannerLayout {
  using Part = std::function<void(ImVec2 size)>;
  Part controls, scatter, best, compared;
  std::string_view first_tab;  // of the controls
  float scatter_share = 0.5f;
  bool any = true;
  std::function<void()> hint = {};
};
void draw_planner_parts(const Look& look, int& tab, const PlannerLayout& layout);

}  // namespace app::gui
