#include "app/gui/figures/page.h"

#include "app/cli/predict_command.h"
#include "app/cli/report_output.h"
#include "app/gui/figures/svg.h"
#include "app/gui/figures/text.h"
#include "sim/report/step_parts.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr std::size_t kOpenRows = 12;  // of a table that stands open; longer ones unfold

constexpr const char* kStyle = R"(
:root { color-scheme: light; }
body { font: 16px/1.5 Inter, "Helvetica Neue", Arial, sans-serif; color: #1b2430; background: #fff;
       max-width: 980px; margin: 40px auto; padding: 0 16px; }
h1 { font-size: 28px; margin: 0 0 4px; } h2 { font-size: 21px; margin: 44px 0 2px; } h3 { font-size: 16px; margin: 20px 0 6px; }
.quiet { color: #55616f; } .bounds { font-size: 20px; margin: 12px 0; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 14px; } th { text-align: left; color: #55616f; font-weight: 500; }
th, td { padding: 3px 14px 3px 0; border-bottom: 1px solid #d9dfe7; } .number { text-align: right; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
code, pre { font-family: "JetBrains Mono", Menlo, Consolas, monospace; font-size: 13px; background: #f5f7fa; border-radius: 5px; }
pre { padding: 12px; overflow-x: auto; }
)";

std::string html_table(const Figure& figure) {
  const FigureTable table = table_of(figure);
  std::string html = "<div class=\"wide\"><table><tr>";
  for (const FigureColumn& column : table.columns)
    html.append(column.measure == Measure::words ? "<th>" : "<th class=\"number\">")
        .append(escaped(column.name))
        .append("</th>");
  html += "</tr>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      html.append(table.columns[i].measure == Measure::words ? "<td>" : "<td class=\"number\">")
          .append(escaped(cell_text(row[i], table.columns[i].measure)))
          .append("</td>");
    html += "</tr>\n";
  }
  html += "</table></div>\n";
  if (table.rows.size() <= kOpenRows) return html;
  return "<details><summary>" + std::to_string(table.rows.size()) + " rows</summary>\n" + html +
         "</details>\n";
}

std::string source_row(std::string_view what, std::string_view name, std::string_view source) {
  return std::string("<tr><td>")
      .append(what)
      .append("</td><td>")
      .append(escaped(name))
      .append("</td><td>")
      .append(escaped(source.empty() ? "of the scenario" : source))
      .append("</td></tr>\n");
}

// What ends a script would end this one within its text.
std::string in_script(std::string json) {
  for (std::size_t at = 0; (at = json.find("</", at)) != std::string::npos; at += 3)
    json.insert(at + 1, 1, '\\');
  return json;
}

}  // namespace

std::string_view page_style() {
  return kStyle;
}

std::string to_html(const sim::Report& report, std::span<const PanelFigures> panels) {
  const sim::Scenario& scenario = report.source.scenario;
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>" +
                     escaped(cli::headline(report)) + "</title>\n<style>" + kStyle +
                     "</style></head><body>\n";
  html += "<h1>" + escaped(scenario.model.name + " on " + scenario.hardware.name) +
          "</h1>\n<p class=\"quiet\">" + escaped(cli::headline(report)) + "</p>\n<p class=\"bounds\">" +
          escaped(sim::bottleneck_sentence(report)) + "</p>\n";
  for (const PanelFigures& panel : panels) {
    if (panel.figures.empty()) continue;
    html += "<section id=\"" + escaped(panel.id) + "\"><h2>" + escaped(panel.title) +
            "</h2>\n<p class=\"quiet\">" + escaped(panel.caption) + "</p>\n";
    for (const Figure& figure : panel.figures) {
      if (std::holds_alternative<FigureTable>(figure.data))
        html += "<h3>" + escaped(figure.title) + "</h3>\n" + html_table(figure);
      else
        html += to_svg(figure);
    }
    html += "</section>\n";
  }
  html += "<section id=\"sources\"><h2>Sources</h2>\n<table>\n" +
          source_row("model", scenario.model.name, scenario.model.source) +
          source_row("hardware", scenario.hardware.name, scenario.hardware.source) +
          source_row("software", scenario.implementation.name, scenario.implementation.source);
  if (!report.source.calibration.empty())
    html += source_row("calibration", report.source.calibration, "measured on this hardware");
  html += "</table></section>\n<section id=\"again\"><h2>Predict it again</h2>\n<pre>" +
          escaped(cli::predict_command(scenario)) + "</pre>\n<p class=\"quiet\">" +
          escaped(report.source.software.empty() ? "ridgepoint" : report.source.software) +
          ". The scenario is in this page, as JSON, under the id scenario.</p></section>\n";
  html += "<script type=\"application/json\" id=\"carried\">" + in_script(sim::to_json(scenario)) +
          "</script>\n</body></html>\n";
  return html;
}

}  // namespace app::gui
