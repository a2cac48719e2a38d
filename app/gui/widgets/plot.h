// What every plot shares: its frame, its line styles (predicted dashed, measured solid), ticks and labels.
#pragma once
#include <imgui.h>
#include <implot.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/jobs/series.h"
#include "app/gui/theme.h"

namespace app::gui {

// A line through points in pixels.
void dashed_line(ImDrawList* list, const Look& look, std::span<const ImVec2> points, ImU32 color,
                 float weight);

// Diagonal strokes over a rectangle: what lies past a limit.
void hatch(ImDrawList* list, const Look& look, ImVec2 least, ImVec2 most, ImU32 color);

// About `wanted` round numbers that cover [low, high]: 1, 2 or 5 times a power of ten.
std::vector<double> round_ticks(double low, double high, int wanted);
// "100", "1k", "0.5": as short as the step between ticks allows.
std::string tick_label(double value);

// Inside a plot.
void plot_measured(const Look& look, const char* id, const Series& series);
void plot_predicted(const Look& look, double value, double low, double high);

// Places labels one by one where they hide nothing placed before: tries the sides of a point in turn.
class LabelPlacer {
 public:
  LabelPlacer(ImVec2 least, ImVec2 most) : least_(least), most_(most) {}
  void block(ImVec2 least, ImVec2 most) { taken_.push_back({least.x, least.y, most.x, most.y}); }
  // Along a line, so that labels keep off it.
  void block_line(ImVec2 from, ImVec2 to, float half_width);
  // The upper left corner, or false where every side is taken.
  bool place(ImVec2 centre, float clearance, ImVec2 size, ImVec2& position);

 private:
  bool is_free(ImVec2 least, ImVec2 most) const;
  ImVec2 least_, most_;
  std::vector<ImVec4> taken_;
};

}  // namespace app::gui
