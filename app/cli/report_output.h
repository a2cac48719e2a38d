// A report on its way to a person or a program: text, JSON, CSV, Markdown. Every total comes from
// sim/report/metrics.h.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/cli/flags.h"
#include "sim/report/events.h"

namespace app::cli {

// A total: its key bears the unit, its text is for people. No value: the report does not say (peaks not
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

// sim::remarks(), a paragraph each.
std::string remarks_text(const sim::Scenario& scenario);

// {"schema_version", "metrics": {...}, "remarks": [...], "report": {...}}: the totals beside what they are
// functions of. Units stand in the keys. `indent` as nlohmann::json::dump has it: -1 is one line.
std::string report_json(const sim::Report& report, int indent = 2, const std::vector<Metric>& further = {});

// The rows, a line each.
std::string report_csv(const sim::Report& report);

// The totals of one scenario as a line under metrics_csv_header(): what --batch writes. A scenario that has
// none says why in the last column.
std::string metrics_csv_header();
std::string metrics_csv_line(const sim::Report& report);
std::string metrics_csv_failure(const std::string& why_not);

// The totals, and the rows, as two tables.
std::string report_markdown(const sim::Report& report, const std::vector<Metric>& further = {});

// `further` totals, of what the report alone does not hold, stand after its own; csv has rows alone.
std::string report_as(const sim::Report& report, Format format, const std::vector<Metric>& further = {});

// A run's events from a file: a stream of them, or those that a report stands for. Throws as read_report().
std::vector<sim::Event> read_events(const std::string& path);

// A report from a file: what report_json() wrote, a report alone, or a stream of events. Throws
// sim::PresetError or runtime::InputError.
sim::Report read_report(const std::string& path);

}  // namespace app::cli
