// Figures as text: files for programs (CSV, TSV), which hold numbers in base units with the unit in the
// column's name, and Markdown for people, whose numbers bear their units.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "app/gui/figures/figure.h"

namespace app::gui {

// RFC 4180. Several figures stand one after the other, each under a line with its title.
std::string to_csv(std::span<const Figure> figures);
// What a spreadsheet takes from the clipboard.
std::string to_tsv(std::span<const Figure> figures);
std::string to_markdown(std::span<const Figure> figures);

// "time over the step" of seconds: "time_over_the_step_seconds".
std::string column_key(const FigureColumn& column);
// As people read it; empty for a cell without a value.
std::string cell_text(const Cell& cell, Measure measure);
// For XML and HTML: & < > and quotes as entities.
std::string escaped(std::string_view words);

}  // namespace app::gui
