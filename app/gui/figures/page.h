// A whole scenario as one HTML page that needs no other file and no network: what bounds it, plots, tables,
// sources, and the command that predicts it again. The scenario itself is in the page, as JSON.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "app/gui/figures/figure.h"
#include "sim/report/report.h"

namespace app::gui {

// The style sheet of all pages.
std::string_view page_style();

std::string to_html(const sim::Report& report, std::span<const PanelFigures> panels);

}  // namespace app::gui
