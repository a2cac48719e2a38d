// The formats that figures are written in, by the endings of their files.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "app/gui/figures/figure.h"
#include "sim/report/report.h"

namespace app::gui {

enum class ExportFormat { svg, csv, tsv, markdown, trace, html };
inline constexpr int kExportFormats = 6;
std::string_view ending_of(ExportFormat format);  // ".svg"
std::optional<ExportFormat> format_with_ending(std::string_view ending);

// `report` is the scenario's, for a page; a drawing carries its scenario. Throws runtime::InputError, a
// sentence, where there is nothing to write: a trace without a timeline, or no figures at all.
std::string written(ExportFormat format, std::span<const PanelFigures> panels, const sim::Report* report);

// Written beside and renamed over. Throws runtime::DeviceError, a sentence.
void write_text(const std::string& file, const std::string& text);

}  // namespace app::gui
