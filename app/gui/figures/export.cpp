#include "app/gui/figures/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "app/gui/figures/carried.h"
#include "app/gui/figures/page.h"
#include "app/gui/figures/svg.h"
#include "app/gui/figures/text.h"
#include "app/gui/figures/trace.h"
#include "runtime/error.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

// In the order of the formats.
constexpr std::array<std::string_view, kExportFormats> kEndings = {".svg", ".csv",  ".tsv",
                                                                   ".md",  ".json", ".html"};

// A figure's title names its panel where there are several.
std::vector<Figure> figures_of(std::span<const PanelFigures> panels) {
  std::vector<Figure> all;
  for (const PanelFigures& panel : panels)
    for (const Figure& figure : panel.figures) {
      all.push_back(figure);
      if (panels.size() > 1) all.back().title = panel.title + ": " + figure.title;
    }
  return all;
}

// FNV-1a of its JSON: who has the scenario sees whether a picture is of it.
std::string hash_of(const sim::Scenario& scenario) {
  std::uint32_t hash = 2166136261u;
  for (const char letter : sim::to_json(scenario))
    hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return fmt::format("{:08x}", hash);
}

std::string provenance(const sim::Report& report) {
  const sim::Scenario& s = report.source.scenario;
  return fmt::format("Ridgepoint {}: {}, {} on {} x {}, scenario {}", RIDGEPOINT_VERSION,
                     sim::name(report.source.kind), s.model.name, s.strategy.devices(), s.hardware.name,
                     hash_of(s));
}

}  // namespace

std::string_view ending_of(ExportFormat format) {
  return kEndings[static_cast<std::size_t>(format)];
}

std::optional<ExportFormat> format_with_ending(std::string_view ending) {
  const auto found = std::find(kEndings.begin(), kEndings.end(), ending);
  if (found == kEndings.end()) return std::nullopt;
  return static_cast<ExportFormat>(found - kEndings.begin());
}

std::string written(ExportFormat format, std::span<const PanelFigures> panels, const sim::Report* report) {
  const std::vector<Figure> figures = figures_of(panels);
  const std::string whose = panels.size() == 1 ? "The panel " + panels.front().title : "This scenario";
  if (figures.empty()) throw runtime::InputError(whose + " has no figures to write.");
  std::string text;
  switch (format) {
    case ExportFormat::svg:
      text = to_svg(panels.size() == 1 ? panels.front() : PanelFigures{"", "Ridgepoint", "", figures},
                    report ? provenance(*report) : "");
      return report ? svg_with(std::move(text), report->source.scenario) : text;
    case ExportFormat::csv:
      return to_csv(figures);
    case ExportFormat::tsv:
      return to_tsv(figures);
    case ExportFormat::markdown:
      return to_markdown(figures);
    case ExportFormat::trace:
      text = to_chrome_trace(figures);
      if (text.empty())
        throw runtime::InputError(whose + " has no timeline: the panel Pipeline has one in training.");
      return text;
    case ExportFormat::html:
      if (!report) throw runtime::InputError("There is no prediction to write a page about.");
      return to_html(*report, panels);
  }
  return text;
}

void write_text(const std::string& file, const std::string& text) {
  const std::string beside = file + ".new";
  std::ofstream out(beside, std::ios::binary);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(beside, file, error);
  if (!out || error) throw runtime::DeviceError("The export could not be written to " + file + ".");
}

}  // namespace app::gui
