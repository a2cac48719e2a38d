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
#include "app/gui/widgets/numbers.h"

namespace app::gui {

// A line through points in pixels.
void dashed_line(ImDrawList* list, const Look& look, std::span<const ImVec2> points, ImU32 color,
                 float weight);

// Diagonal strokes over a rectangle: what lies past a limit.
void hatch(ImDrawList* list, const Look& look, ImVec2 least, ImVec2 most, ImU32 color);

// About `wanted` round numbers within [low, high], 1, 2 or 5 times a power of ten apart; two at least,
// because one says nothing of the others.
std::vector<double> round_ticks(double low, double high, int wanted);
// Powers of ten from low to high, every so many where there are more than wanted; with 2 and 5 between where
// there are few.
std::vector<double> decade_ticks(double low, double high, int wanted);
// Inside a plot that is being set up: an axis with just these ticks, each with its grid line.
void round_axis(ImAxis axis, double low, double high, int wanted);
void decade_axis(ImAxis axis, double low, double high, int wanted);
// Writes the axis's ticks by tick_label(), in a unit that must outlive the plot.
void label_axis(ImAxis axis, const ScaleUnit& unit);
void label_axis(ImAxis axis);

// Names the axes of a plot of this size that is being set up; a name that has no room stays away.
void name_axes(const Look& look, std::string_view x, std::string_view y, ImVec2 size);

// Inside a plot.
void plot_measured(const Look& look, const char* id, const Series& series);
void plot_predicted(const Look& look, double value, double low, double high);

// Places labels one by one where they hide nothing that is drawn or was placed before. A label without such
// a place is left out.
class LabelPlacer {
 public:
  LabelPlacer(ImVec2 least, ImVec2 most) : least_(least), most_(most) {}
  void block(ImVec2 least, ImVec2 most) { taken_.push_back({least.x, least.y, most.x, most.y}); }
  // Along a line, so that labels keep off it.
  void block_line(ImVec2 from, ImVec2 to, float half_width) { lines_.push_back({from, to, half_width}); }
  // The first free one of the upper left corners, or false.
  bool place_at(std::span<const ImVec2> corners, ImVec2 size, ImVec2& position);
  // At the sides of a point, in turn.
  bool place(ImVec2 centre, float clearance, ImVec2 size, ImVec2& position);

 private:
  struct Line {
    ImVec2 from, to;
    float half_width;
    bool crosses(ImVec2 least, ImVec2 most) const;
  };
  bool is_free(ImVec2 least, ImVec2 most) const;
  ImVec2 least_, most_;
  std::vector<ImVec4> taken_;
  std::vector<Line> lines_;
};

}  // namespace app::gui
