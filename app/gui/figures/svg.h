// A figure as SVG: paper white, with real text, so that it can be searched, restyled and printed at any size.
#pragma once
#include <span>
#include <string>

#include "app/gui/figures/figure.h"

namespace app::gui {

// One drawing; its text is in points of its own width.
std::string to_svg(const Figure& figure);
// The figures of a panel one below the other, under its title; as tables where there is nothing to draw.
// `footer` stands at the end and says what they show.
std::string to_svg(const PanelFigures& panel, const std::string& footer = "");

}  // namespace app::gui
