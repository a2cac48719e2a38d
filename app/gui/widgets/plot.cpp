#include "app/gui/widgets/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/text.h"

namespace app::gui {

void dashed_line(ImDrawList* list, const Look& look, std::span<const ImVec2> points, ImU32 color,
                 float weight) {
  const float dash = look.px(6), gap = look.px(4);
  float phase = 0;  // walked since the dash began
  for (std::size_t i = 1; i < points.size(); ++i) {
    const ImVec2 a = points[i - 1], b = points[i];
    const float dx = b.x - a.x, dy = b.y - a.y;
    const float length = std::hypot(dx, dy);
    if (length <= 0) continue;
    for (float at = 0; at < length;) {
      const bool drawing = phase < dash;
      const float step = std::min((drawing ? dash : dash + gap) - phase, length - at);
      if (drawing)
        list->AddLine({a.x + dx * at / length, a.y + dy * at / length},
                      {a.x + dx * (at + step) / length, a.y + dy * (at + step) / length}, color, weight);
      at += step;
      phase += step;
      if (phase >= dash + gap - 1e-3f) phase = 0;
    }
  }
}

void hatch(ImDrawList* list, const Look& look, ImVec2 least, ImVec2 most, ImU32 color) {
  list->PushClipRect(least, most, true);
  const float height = most.y - least.y;
  const float spacing = std::floor(look.px(6));
  // From a grid fixed to the window, so that neighbouring rectangles continue each other's strokes.
  const float first = std::floor((least.x - height) / spacing) * spacing;
  for (float x = first; x < most.x; x += spacing)
    list->AddLine({x, most.y}, {x + height, least.y}, color, look.px(1.2f));
  list->PopClipRect();
}

namespace {

std::vector<double> multiples(double low, double high, int wanted) {
  std::vector<double> ticks;
  const double rough = (high - low) / wanted;
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  double step = decade * 10;
  for (const double factor : {1.0, 2.0, 5.0})
    if (decade * factor >= rough) {
      step = decade * factor;
      break;
    }
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k)
    ticks.push_back(k == 0 ? 0 : k * step);  // never -0
  return ticks;
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int wanted) {
  if (!(high > low)) return {};
  constexpr std::size_t kLeast = 2;
  // Where that many are wanted, kLeast come of any range: steps are rounded up by 2.5 at most.
  constexpr int kSurely = 5;
  int count = std::max(1, wanted);
  std::vector<double> ticks = multiples(low, high, count);
  while (ticks.size() < kLeast && count < kSurely) ticks = multiples(low, high, ++count);
  return ticks;
}

std::vector<double> decade_ticks(double low, double high, int wanted) {
  const int first = static_cast<int>(std::ceil(std::log10(low))),
            last = static_cast<int>(std::floor(std::log10(high)));
  const int whole = last - first + 1;  // powers of ten in sight
  // Between them there are more where there is room, or where they alone would not say a scale.
  const bool between = (whole + 1) * 2 <= wanted || whole < 2;
  const int stride = between ? 1 : std::clamp((whole + wanted - 1) / wanted, 1, whole - 1);
  std::vector<double> ticks;
  for (int power = between ? first - 1 : first; power <= last; power += stride)
    for (const double times : {1.0, 2.0, 5.0}) {
      const double tick = times * std::pow(10.0, power);
      if ((times == 1 || between) && tick >= low && tick <= high) ticks.push_back(tick);
    }
  return ticks;
}

void round_axis(ImAxis axis, double low, double high, int wanted) {
  const std::vector<double> ticks = round_ticks(low, high, wanted);
  if (!ticks.empty()) ImPlot::SetupAxisTicks(axis, ticks.data(), static_cast<int>(ticks.size()));
}

void decade_axis(ImAxis axis, double low, double high, int wanted) {
  const std::vector<double> ticks = decade_ticks(low, high, wanted);
  if (!ticks.empty()) ImPlot::SetupAxisTicks(axis, ticks.data(), static_cast<int>(ticks.size()));
}

void label_axis(ImAxis axis, const ScaleUnit& unit) {
  const auto write = [](double value, char* buffer, int size, void* of) {
    const double shown = value / static_cast<const ScaleUnit*>(of)->size;
    return std::snprintf(buffer, static_cast<std::size_t>(size), "%s", tick_label(shown).c_str());
  };
  // ImPlot hands back what it was given, as void*.
  ImPlot::SetupAxisFormat(axis, write, const_cast<ScaleUnit*>(&unit));
}

void label_axis(ImAxis axis) {
  static constexpr ScaleUnit kPlain{1, ""};
  label_axis(axis, kPlain);
}

void name_axes(const Look& look, std::string_view x, std::string_view y, ImVec2 size) {
  // Ticks and their labels take the rest.
  const float beside = look.px(70), below = look.px(44);
  const auto fits = [&](std::string_view words, float room) {
    return text_size_of(look, TextRole::caption, words).x <= room;
  };
  const std::string across(fits(x, size.x - beside) ? x : ""), up(fits(y, size.y - below) ? y : "");
  ImPlot::SetupAxes(across.c_str(), up.c_str(), ImPlotAxisFlags_NoHighlight, ImPlotAxisFlags_NoHighlight);
}

void plot_measured(const Look& look, const char* id, const Series& series) {
  const std::vector<Point> points = series.points();
  if (points.empty()) return;
  ImPlotSpec spec;
  spec.LineColor = ImGui::ColorConvertU32ToFloat4(look.color().measured);
  spec.LineWeight = look.px(1.6f);
  spec.Stride = sizeof(Point);
  if (points.size() == 1) {
    spec.Marker = ImPlotMarker_Circle;
    spec.MarkerSize = look.px(3);
    spec.MarkerFillColor = spec.MarkerLineColor = spec.LineColor;
    ImPlot::PlotScatter(id, &points[0].x, &points[0].y, 1, spec);
    return;
  }
  ImPlot::PlotLine(id, &points[0].x, &points[0].y, static_cast<int>(points.size()), spec);
}

void plot_predicted(const Look& look, double value, double low, double high) {
  const ImPlotRect limits = ImPlot::GetPlotLimits();
  ImPlot::PushPlotClipRect();
  ImDrawList* list = ImPlot::GetPlotDrawList();
  const auto at = [](double x, double y) { return ImPlot::PlotToPixels(x, y); };
  if (high > low)
    list->AddRectFilled(at(limits.X.Min, high), at(limits.X.Max, low),
                        with_alpha(look.color().predicted, 0.16f));
  const ImVec2 points[] = {at(limits.X.Min, value), at(limits.X.Max, value)};
  dashed_line(list, look, points, look.color().predicted, look.px(1.6f));
  ImPlot::PopPlotClipRect();
}

bool LabelPlacer::Line::crosses(ImVec2 least, ImVec2 most) const {
  // Liang and Barsky 1984: the part of the segment that each edge of the rectangle leaves.
  float enters = 0, leaves = 1;
  const auto clip = [&](float direction, float room) {
    if (direction == 0) return room >= 0;
    const float at = room / direction;
    (direction < 0 ? enters : leaves) = direction < 0 ? std::max(enters, at) : std::min(leaves, at);
    return enters <= leaves;
  };
  const float dx = to.x - from.x, dy = to.y - from.y;
  return clip(-dx, from.x - (least.x - half_width)) && clip(dx, most.x + half_width - from.x) &&
         clip(-dy, from.y - (least.y - half_width)) && clip(dy, most.y + half_width - from.y);
}

bool LabelPlacer::is_free(ImVec2 least, ImVec2 most) const {
  if (least.x < least_.x || least.y < least_.y || most.x > most_.x || most.y > most_.y) return false;
  const bool hides = std::any_of(taken_.begin(), taken_.end(), [&](const ImVec4& r) {
    return least.x < r.z && most.x > r.x && least.y < r.w && most.y > r.y;
  });
  return !hides && std::none_of(lines_.begin(), lines_.end(),
                                [&](const Line& line) { return line.crosses(least, most); });
}

bool LabelPlacer::place_at(std::span<const ImVec2> corners, ImVec2 size, ImVec2& position) {
  for (const ImVec2 corner : corners) {
    const ImVec2 most = {corner.x + size.x, corner.y + size.y};
    if (!is_free(corner, most)) continue;
    block(corner, most);
    position = corner;
    return true;
  }
  return false;
}

bool LabelPlacer::place(ImVec2 centre, float clearance, ImVec2 size, ImVec2& position) {
  const float diagonal = clearance * 0.75f;
  const std::array<ImVec2, 8> corners = {{
      {centre.x + clearance, centre.y - size.y / 2},
      {centre.x + diagonal, centre.y + diagonal - size.y * 0.2f},
      {centre.x - size.x / 2, centre.y + clearance},
      {centre.x - clearance - size.x, centre.y - size.y / 2},
      {centre.x + diagonal, centre.y - diagonal - size.y * 0.8f},
      {centre.x - size.x / 2, centre.y - clearance - size.y},
      {centre.x - diagonal - size.x, centre.y + diagonal - size.y * 0.2f},
      {centre.x - diagonal - size.x, centre.y - diagonal - size.y * 0.8f},
  }};
  return place_at(corners, size, position);
}

}  // namespace app::gui
