#include "app/gui/panels/lessons_handout.h"

#include "app/gui/figures/page.h"
#include "app/gui/figures/svg.h"
#include "app/gui/figures/text.h"
#include "app/gui/panels/lessons_figures.h"
#include "app/gui/panels/lessons_film.h"
#include "app/gui/panels/lessons_series.h"

namespace app {
namespace {

using gui::escaped;
using lesson::Span;

// Beside the style of all pages. Sheets are filled: what is torn at their ends is a step, not one of its
// parts. Pictures are drawn wider than a sheet, so that their type is larger there.
constexpr const char* kStyle = R"(
.step { margin: 36px 0; }
p, .question, .formula, svg, tr { break-inside: avoid; }
h1, h2, h3, .of { break-after: avoid; }
p + .question { break-before: avoid; }
.formula { margin: 10px 0 10px 24px; font-family: "JetBrains Mono", Menlo, Consolas, monospace; font-size: 14px; }
.question { border: 1px solid #aab4c0; border-radius: 8px; padding: 10px 16px; margin: 14px 0; }
.question ul { list-style: none; padding: 0; margin: 8px 0; }
.box { display: inline-block; width: 12px; height: 12px; border: 1.5px solid #1b2430; border-radius: 3px; margin-right: 10px; }
.right .box { background: #1b2430; }
.room { border-bottom: 1px solid #55616f; height: 34px; }
.take { border-left: 4px solid #2b6cb0; padding-left: 14px; font-weight: 600; }
.after { break-before: page; }
.note { background: #fff7df; padding: 6px 14px; border-radius: 6px; }
@page { size: A4; margin: 16mm 18mm; }
@media print {
  body { margin: 0; padding: 0; max-width: none; font-size: 11pt; }
  svg text { font-size: 14px; }
}
)";

std::string html_of(const lesson::ShownWords& words) {
  std::string html;
  for (const lesson::ShownSpan& span : words) {
    const std::string_view tag = span.kind == Span::Kind::bold || span.kind == Span::Kind::value ? "b"
                                 : span.kind == Span::Kind::code                                 ? "code"
                                                                                                 : "";
    if (tag.empty())
      html += escaped(span.words);
    else
      html.append("<")
          .append(tag)
          .append(">")
          .append(escaped(span.words))
          .append("</")
          .append(tag)
          .append(">");
  }
  return html;
}

std::string paragraph(std::string_view kind, const std::string& html) {
  return std::string("<p class=\"").append(kind).append("\">").append(html).append("</p>\n");
}

// What a cell without a number is on paper: room to write.
constexpr const char* kRoom = "<div class=\"room\"></div>\n";

struct Writer {
  const HandoutOptions& options;

  std::string operator()(const lesson::ShownParagraph& p) const {
    if (p.words.empty()) return {};
    return p.bullet ? "<ul><li>" + html_of(p.words) + "</li></ul>\n" : "<p>" + html_of(p.words) + "</p>\n";
  }

  std::string operator()(const lesson::ShownFormula& f) const {
    return "<div class=\"formula\">" + escaped(f.words) +
           (f.numbers.empty() ? "" : "<br>= " + escaped(f.numbers)) + "<br>= <b>" + escaped(f.result) +
           "</b></div>\n";
  }

  std::string operator()(const lesson::ShownQuestion& q) const {
    std::string html = "<div class=\"question\"><b>" + html_of(q.ask) + "</b>\n";
    if (!q.choices.empty()) {
      html += "<ul>\n";
      for (std::size_t i = 0; i < q.choices.size(); ++i)
        html += std::string(options.answers && q.right == i ? "<li class=\"right\">" : "<li>") +
                "<span class=\"box\"></span>" + html_of(q.choices[i]) + "</li>\n";
      html += "</ul>\n";
    }
    if (options.answers)
      html += "<p>Answer: <b>" + escaped(q.answer_text) + "</b>. " + html_of(q.because) + "</p>\n";
    else if (q.choices.empty())
      html += kRoom;
    if (!options.answers) html += "<p class=\"quiet\">Why?</p>\n" + std::string(kRoom);
    return html + "</div>\n";
  }

  std::string operator()(const lesson::ShownPlot& p) const {
    return gui::to_svg(gui::figure_of(p, gui::palette(Theme::light)));
  }

  std::string operator()(const lesson::ShownTable& t) const {
    std::string html = "<div class=\"wide\"><table><tr>";
    for (const std::string& column : t.columns) html += "<th>" + escaped(column) + "</th>";
    html += "</tr>\n";
    for (const auto& row : t.rows) {
      html += "<tr>";
      for (const std::string& cell : row) html += "<td>" + escaped(cell) + "</td>";
      html += "</tr>\n";
    }
    return html + "</table></div>\n";
  }

  std::string operator()(const lesson::ShownMeasurement& m) const {
    std::string html =
        "<table><tr><th>" + escaped(m.by) +
        "</th><th>predicted</th><th>measured on your machine</th><th>measured / predicted</th></tr>\n";
    for (const auto& row : m.rows)
      html += "<tr><td>" + escaped(row.what()) + "</td><td>" + escaped(row.predicted) +
              "</td><td></td><td></td></tr>\n";
    return html + "</table>\n";
  }

  std::string operator()(const lesson::ShownFilm& f) const {
    return f.film ? gui::to_svg(gui::figure_of(*f.film, gui::palette(Theme::light))) : "";
  }

  std::string operator()(const lesson::ShownSeries& s) const {
    std::string html =
        "<table><tr><th>grows as a power</th><th>time claimed</th><th>predicted</th><th>measured</th>"
        "<th>memory claimed</th><th>predicted</th><th>measured</th></tr>\n";
    const auto cell = [&](std::optional<double> exponent) {
      html += "<td>" + (exponent ? gui::power_text(*exponent) : std::string()) + "</td>";
    };
    for (const auto& row : s.rows) {
      html += "<tr><td>" + escaped(row.what) + "</td>";
      cell(row.time_claimed);
      cell(row.time_predicted);
      cell({});
      cell(row.memory_claimed);
      cell(row.memory_predicted);
      cell({});
      html += "</tr>\n";
    }
    return html + "</table>\n";
  }

  std::string operator()(const lesson::ShownGoal& g) const {
    const std::string tier = g.tier == lesson::Tier::bronze
                                 ? ""
                                 : std::string(lesson::kTiers[static_cast<std::size_t>(g.tier)]) + ": ";
    return "<p><span class=\"box\"></span>" + tier + html_of(g.words) +
           " <span class=\"quiet\">as it begins: " + escaped(g.numbers) + "</span></p>\n";
  }
};

}  // namespace

std::string handout(const lesson::Lesson& lesson, lesson::Predictions& predictions,
                    const HandoutOptions& options) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>" + escaped(lesson.title) +
      "</title>\n<style>" + std::string(gui::page_style()) + kStyle + "</style></head><body>\n<h1>" +
      escaped(lesson.title) + "</h1>\n" +
      paragraph("quiet", escaped(lesson.chapter) + " · " + std::to_string(lesson.minutes) + " minutes");
  const Writer writer{options};
  std::string after;
  for (std::size_t i = 0; i < lesson.steps.size(); ++i) {
    const lesson::Step& step = lesson.steps[i];
    const sim::Scenario scenario = lesson::scenario_at(lesson, i);
    const lesson::ShownStep shown = lesson::show(lesson, i, scenario, predictions);
    html += "<section class=\"step\"><h2>" + std::to_string(i + 1) + ". " + escaped(step.title) + "</h2>\n" +
            paragraph("quiet of", escaped(scenario.model.name + " on " + scenario.hardware.name));
    // What stands behind a question gives its answer away.
    std::string behind;
    bool asked = false;
    for (const lesson::ShownBlock& block : shown.blocks) {
      (asked ? behind : html) += std::visit(writer, block);
      asked = asked || (!options.answers && std::holds_alternative<lesson::ShownQuestion>(block));
    }
    for (const std::string& failure : shown.failures) html += paragraph("quiet", escaped(failure));
    for (const lesson::ShownParagraph& hint : shown.hints)
      html += paragraph("quiet", "Hint: " + html_of(hint.words));
    if (!shown.take_home.empty()) (asked ? behind : html) += paragraph("take", html_of(shown.take_home));
    if (!behind.empty())
      after += "<h3>" + std::to_string(i + 1) + ". " + escaped(step.title) + "</h3>\n" + behind;
    if (options.notes)
      for (const lesson::ShownParagraph& note : shown.notes)
        html += paragraph("note", "For the lecturer: " + html_of(note.words));
    html += "</section>\n";
  }
  if (!after.empty())
    html += "<section class=\"after\"><h2>When you have answered</h2>\n" + after + "</section>\n";
  return html + "</body></html>\n";
}

}  // namespace app
