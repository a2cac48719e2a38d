// What lessons draw, as figures: for exports and handouts.
#pragma once
#include "app/gui/figures/figure.h"
#include "app/gui/theme.h"
#include "app/lesson/play.h"

namespace app::gui {

Measure measure_of(const lesson::Dimension& dimension, lesson::Style style);
// The colour of a plot's curve: curves take the colours in a fixed order, over and over.
ImU32 curve_color(const Palette& palette, const lesson::ShownPlot& plot, std::size_t curve);
Figure figure_of(const lesson::ShownPlot& plot, const Palette& palette);

}  // namespace app::gui
