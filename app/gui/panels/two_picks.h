// What both searches of the planner show in the same way: two candidates picked from a table, what each
// spends its time on, and the layout of the panel's parts.
#pragma once
#include <imgui.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/jobs/plan_limits.h"
#include "app/gui/theme.h"
#include "sim/units.h"

namespace app::gui {

// The first click picks a candidate, the next one another to compare it with. A click on a pick drops it.
void toggle_pick(Picks& picks, std::int64_t candidate);

ImU32 pick_color(const Look& look, std::size_t pick);

// Title of the comparison: which two they are.
void picks_title(const Look& look, const Picks& picks);

// Candidates, best first, each row picked by a click and marked where it is.
struct CandidateTable {
  // A number of each candidate; the width in pixels at scale 1.
  struct Column {
    const char* heading;
    float width;
    std::function<std::string(std::size_t row)> text;
  };
  const char* heading;  // of the words
  float words_width;    // that they are left at least, where there are more columns than the one that stays
  std::size_t rows = 0;
  std::function<std::int64_t(std::size_t row)> candidate;
  std::function<std::string(std::size_t row)> words;
  std::vector<Column> columns;
  std::size_t ranked_by = 0;  // the column that stays however narrow the table is
};
void draw_candidate_table(const Look& look, Picks& picks, const CandidateTable& table, ImVec2 size);

// Which columns of these widths there is room for: `first`, and the others from the left while they fit. In
// ascending order.
std::vector<std::size_t> columns_that_fit(std::span<const float> widths, std::size_t first, float room);

// Draws one of the two picks by its words; true when its button is pressed.
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
