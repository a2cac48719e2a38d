#include "app/gui/figures/carried.h"

#include "app/gui/png.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr std::string_view kDrawing = "<metadata id=\"scenario\">", kDrawingEnd = "</metadata>";
// As to_html() writes it.
constexpr std::string_view kPage = "<script type=\"application/json\" id=\"carried\">",
                           kPageEnd = "</script>";

std::optional<std::string> between(std::string_view file, std::string_view begin, std::string_view end) {
  const std::size_t from = file.find(begin);
  if (from == std::string_view::npos) return std::nullopt;
  const std::size_t to = file.find(end, from);
  if (to == std::string_view::npos) return std::nullopt;
  return std::string(file.substr(from + begin.size(), to - from - begin.size()));
}

}  // namespace

std::string svg_with(std::string svg, const sim::Scenario& scenario) {
  // What XML has a meaning for stands within strings alone, where JSON has another way to write it.
  std::string json;
  for (const char c : sim::to_json(scenario)) {
    const char* const other = c == '<' ? "\\u003c" : c == '>' ? "\\u003e" : c == '&' ? "\\u0026" : nullptr;
    other ? json.append(other) : json.append(1, c);
  }
  const std::size_t start = svg.find("<svg");
  const std::size_t inside = start == std::string::npos ? start : svg.find('>', start);
  if (inside != std::string::npos)
    svg.insert(inside + 1, "\n" + std::string(kDrawing) + json + std::string(kDrawingEnd));
  return svg;
}

std::optional<std::string> carried_scenario(std::string_view file) {
  if (auto json = text_in_png(file, kCarriedInPng)) return json;
  if (auto json = between(file, kDrawing, kDrawingEnd)) return json;
  return between(file, kPage, kPageEnd);
}

}  // namespace app::gui
