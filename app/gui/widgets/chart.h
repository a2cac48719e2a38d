// A plot of a few curves with their names beside them, on axes that follow what is shown.
#pragma once
#include <imgui.h>
#include <implot.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/gui/theme.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/plot.h"

namespace app::gui {

struct ChartAxis {
  std::string label;  // with its unit
  double low = 0, high = 1;
  bool logarithmic = false;
  ScaleUnit unit{1, ""};  // in which ticks are written
};
// From 0 to a little above `greatest`.
ChartAxis linear_axis(std::string label, double greatest, ScaleUnit unit = {1, ""});
// Linear or logarithmic, a little around what is shown.
ChartAxis near_axis(std::string label, double least, double greatest, ScaleUnit unit = {1, ""});
ChartAxis logarithmic_axis(std::string label, double least, double greatest, ScaleUnit unit = {1, ""});

struct ChartPoint {
  double x = 0, y = 0;
};

enum class Stroke { solid, dashed };

// Between construction and destruction the plot is open: `if (chart) { ... }`. Names are placed last, where
// they hide no line.
class Chart {
 public:
  Chart(const Look& look, const char* id, ImVec2 size, ChartAxis x, ChartAxis y);
  ~Chart();
  Chart(const Chart&) = delete;
  Chart& operator=(const Chart&) = delete;
  explicit operator bool() const { return open_; }

  ImVec2 at(ChartPoint p) const { return ImPlot::PlotToPixels(p.x, p.y); }
  ImDrawList* list() const { return list_; }
  // Left, top, right and bottom of what is inside the axes, in pixels.
  ImVec2 least() const { return least_; }
  ImVec2 most() const { return most_; }

  void line(std::span<const ChartPoint> points, ImU32 color, Stroke stroke = Stroke::solid,
            float weight = 1.6f);
  // Between two curves over the same x.
  void area(std::span<const ChartPoint> upper, std::span<const ChartPoint> lower, ImU32 color);
  // A limit over the whole width or height, with its name.
  void horizontal(double y, ImU32 color, std::string name, Stroke stroke = Stroke::solid);
  void vertical(double x, ImU32 color, std::string name, Stroke stroke = Stroke::solid);
  void dot(ChartPoint p, ImU32 color, bool filled = true, float radius = 3.5f, float weight = 1.4f);
  void name(ChartPoint beside, ImU32 color, std::string words);

  // The pointer's place, while it is inside.
  std::optional<ChartPoint> pointer() const;
  // The item whose place is nearest to the pointer, less than so many pixels at scale 1 away; null: none is.
  template <class Items, class Place>
  auto nearest(const Items& items, Place place, float within = 9) const -> decltype(&*items.begin()) {
    decltype(&*items.begin()) found = nullptr;
    float distance = look_.px(within);
    if (!pointer()) return found;
    for (const auto& item : items)
      if (const float away = from_pointer(place(item)); away < distance) {
        distance = away;
        found = &item;
      }
    return found;
  }

 private:
  float from_pointer(ChartPoint p) const;  // pixels
  struct Name {
    ImVec2 beside;
    ImU32 color;
    std::string words;
  };
  void set_up(ImAxis axis, const ChartAxis& of, float ticks);

  const Look& look_;
  ChartAxis x_, y_;  // ImPlot keeps pointers to their units
  bool open_ = false;
  ImDrawList* list_ = nullptr;
  ImVec2 least_, most_;
  std::vector<Name> names_;
  std::vector<std::pair<ImVec2, ImVec2>> lines_;
  std::vector<std::pair<ImVec2, float>> dots_;  // with their radii
};

// What stands above a chart: a noun, then the sentence that it says. `width` is the most; 0: all there is.
void chart_title(const Look& look, std::string_view title, std::string_view sentence = {}, float width = 0);

}  // namespace app::gui
