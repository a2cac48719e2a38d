#include "app/gui/panels/lessons_figures.h"

#include <algorithm>
#include <array>

namespace app::gui {
namespace {

using lesson::Dimension;

constexpr double kWide = 20;  // times that values differ by where an axis is logarithmic

constexpr std::array kCurveColors = {sim::BufferClass::parameter, sim::BufferClass::activation,
                                     sim::BufferClass::optimizer, sim::BufferClass::kv_cache,
                                     sim::BufferClass::gradient};

}  // namespace

Measure measure_of(const Dimension& dimension, lesson::Style style) {
  const Dimension second = Dimension::of(Dimension::seconds);
  if (dimension == Dimension::of(Dimension::bytes)) return Measure::bytes;
  if (dimension == second) return Measure::seconds;
  if (dimension == Dimension::of(Dimension::flops)) return Measure::flops;
  if (dimension == Dimension::of(Dimension::flops) / second) return Measure::flops_per_second;
  if (dimension == Dimension::of(Dimension::bytes) / second) return Measure::bytes_per_second;
  if (dimension == Dimension::of(Dimension::tokens) / second) return Measure::tokens_per_second;
  if (dimension == Dimension::of(Dimension::dollars)) return Measure::dollars;
  if (style == lesson::Style::percent) return Measure::share;
  return style == lesson::Style::count ? Measure::count : Measure::plain;
}

ImU32 curve_color(const Palette& palette, const lesson::ShownPlot& plot, std::size_t curve) {
  if (plot.curves.size() == 1) return plot.measured ? palette.measured : palette.predicted;
  return palette.memory[static_cast<std::size_t>(kCurveColors[curve % kCurveColors.size()])];
}

Figure figure_of(const lesson::ShownPlot& plot, const Palette& palette) {
  FigurePlot drawn;
  drawn.x = {plot.over, Measure::count, true};
  double least = 0, most = 0;
  for (std::size_t i = 0; i < plot.curves.size(); ++i) {
    FigureCurve curve{plot.curves[i].label, curve_color(palette, plot, i), Mark::dashed, {}};
    for (const auto& [x, y] : plot.curves[i].points) {
      curve.points.push_back({x, y});
      least = most == 0 ? y : std::min(least, y);
      most = std::max(most, y);
    }
    drawn.curves.push_back(std::move(curve));
  }
  drawn.y = {plot.quantity, measure_of(plot.dimension, plot.style), least > 0 && most > kWide * least};
  return {plot.by.empty() ? plot.quantity : plot.quantity + ", by " + plot.by, std::move(drawn)};
}

}  // namespace app::gui
