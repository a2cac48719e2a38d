// Writes a report for a person or a program: text, JSON, CSV, Markdown. Every total comes from
// sim/report/metrics.h.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/cli/flags.h"
#include "sim/report/events.h"

namespace app::cli {

// A total. Its key has the unit; its text is for people. No value: the report does not have it (peaks not
// measured).
struct Metric {
  std::string key, label;
  std::optional<double> value;
  std::string text;
};

// What is computed on what, in a line: "llama-3.1-8b, training, 1 x h100-sxm, bf16, ...".
std::string headline(const sim::Report& report);

// Several sentences and tables for a terminal: does it fit, how fast, what bounds it, the ledger, the longest
// operations.
std::string report_text(const sim::Report& report, const std::vector<Metric>& further = {});

// sim::remarks(), each as a paragraph.
std::string remarks_text(const sim::Scenario& scenario);

// {"schema_version", "metrics": {...}, "remarks": [...], "report": {...}}: the totals beside what they are
// functions of. Units stand in the keys. `indent` as nlohmann::json::dump has it: -1 is one line.
std::string report_json(const sim::Report& report, int indent = 2, const std::vector<Metric>& further = {});

// The report's rows as CSV, one line each.
std::string report_csv(const sim::Report& report);

// The totals of one scenario as a line under metrics_csv_header(), as --batch writes it. For a scenario
// without totals the last column says why.
std::string metrics_csv_header();
std::string metrics_csv_line(const sim::Report& report);
std::string metrics_csv_failure(const std::string& why_not);

// Two tables: the totals and the rows.
std::string report_markdown(const sim::Report& report, const std::vector<Metric>& further = {});

// `further` are totals that the report alone does not hold; they follow its own. CSV has only the rows.
std::string report_as(const sim::Report& report, Format format, const std::vector<Metric>& further = {});

// Reads a run's events from a file: a stream, or those that a report stands for. Throws as read_report().
std::vector<sim::Event> read_events(const std::string& path);

// Reads a report from a file: report_json()'s output, a report alone, or a stream of events. Throws
// sim::PresetError or runtime::InputError.
sim::Report read_report(const std::string& path);

}  // namespace app::cli
