// What lessons draw, as figures: for exports and handouts.
#pragma once
#include "app/gui/figures/figure.h"
#include "app/gui/theme.h"
#include "app/lesson/play.h"

namespace app::gui {

Measure measure_of(const lesson::Dimension& dimension, lesson::Style style);
// Of the curves of a plot, in this order, over and over.
ImU32 curve_color(const Palette& palette, std::size_t curve, std::size_t curves);
Figure figure_of(const lesson::ShownPlot& plot, const Palette& palette);

}  // namespace app::gui
