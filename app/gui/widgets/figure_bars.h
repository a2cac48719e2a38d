// Stacked bars on screen, as exports have them: a row each, parts in their colours, the sum behind them.
#pragma once
#include <span>

#include "app/gui/figures/figure.h"
#include "app/gui/theme.h"

namespace app::gui {

// From the cursor down, no higher than `size`; parts are named under the pointer. `colors`: of the rows'
// names; the text's where there are fewer.
void draw_figure_bars(const Look& look, const FigureBars& bars, ImVec2 size,
                      std::span<const ImU32> colors = {});

// The parts that any bar has, with their colours.
void draw_figure_legend(const Look& look, const FigureBars& bars, float width);

}  // namespace app::gui
