// ridgepoint validate: each row of a table of measurements predicted, and the errors.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/command.h"
#include "app/cli/flags.h"
#include "app/cli/text_table.h"
#include "sim/format.h"
#include "sim/validate/table_validation.h"

namespace app::cli {

namespace {

constexpr int kValidationSchemaVersion = 1;

struct ValidateFlags {
  std::string table, out;
  Format format = Format::text;
};

TextTable summary_table(const std::vector<sim::ErrorSummary>& summaries) {
  using Align = TextTable::Align;
  TextTable table{{{"source", Align::left},
                   {"GPU", Align::left},
                   {"rows"},
                   {"predicted"},
                   {"compared"},
                   {"median"},
                   {"mean"},
                   {"90th pct."},
                   {"bias"},
                   {"in 90 % band"},
                   {"outcome right"}},
                  {}};
  for (const sim::ErrorSummary& s : summaries) {
    const bool whole = &s == &summaries.front(), any = s.compared > 0;
    const auto percent = [any](double fraction) { return any ? sim::format_percent(fraction) : ""; };
    table.rows.push_back({whole ? "all" : s.source, s.gpu, fmt::format("{}", s.rows),
                          fmt::format("{}", s.predicted), fmt::format("{}", s.compared), percent(s.median),
                          percent(s.mean), percent(s.p90), percent(s.bias), percent(s.inside_band),
                          s.fitted + s.failed > 0 ? sim::format_percent(s.balanced_accuracy()) : ""});
  }
  return table;
}

std::string summary_json(const sim::Validation& validation, const std::vector<sim::ErrorSummary>& summaries) {
  nlohmann::ordered_json json;
  json["schema_version"] = kValidationSchemaVersion;
  json["table"] = validation.reader ? nlohmann::ordered_json(validation.reader->what) : nullptr;
  json["summaries"] = nlohmann::ordered_json::array();
  for (const sim::ErrorSummary& s : summaries) {
    const bool whole = &s == &summaries.front();
    nlohmann::ordered_json entry;
    entry["source"] = whole ? nlohmann::ordered_json() : nlohmann::ordered_json(s.source);
    entry["gpu"] = whole ? nlohmann::ordered_json() : nlohmann::ordered_json(s.gpu);
    entry["rows"] = s.rows;
    entry["predicted"] = s.predicted;
    entry["compared"] = s.compared;
    if (s.compared > 0) {
      entry["median_absolute_error_percent"] = 100 * s.median;
      entry["mean_absolute_error_percent"] = 100 * s.mean;
      entry["p90_absolute_error_percent"] = 100 * s.p90;
      entry["bias_percent"] = 100 * s.bias;
      entry["inside_90_percent_band_percent"] = 100 * s.inside_band;
    }
    if (s.fitted + s.failed > 0) {
      entry["fitted"] = s.fitted;
      entry["failed"] = s.failed;
      entry["outcome_balanced_accuracy_percent"] = 100 * s.balanced_accuracy();
    }
    json["summaries"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

ExitCode validate(const ValidateFlags& flags) {
  const sim::CsvTable table = sim::csv_from_text(read_file(flags.table), flags.table);
  const sim::Validation validation = sim::validate_table(table);
  if (!flags.out.empty()) write_file(flags.out, to_text(sim::with_predictions(table, validation)));
  const std::vector<sim::ErrorSummary> summaries = sim::summarize(table, validation);
  switch (flags.format) {
    case Format::json:
      fmt::print("{}", summary_json(validation, summaries));
      break;
    case Format::markdown:
      fmt::print("{}", summary_table(summaries).markdown());
      break;
    default:
      fmt::print("{}", summary_table(summaries).text());
  }
  if (!validation.reader && !validation.rows.empty())
    fmt::print(stderr, "ridgepoint: {}: {}\n", flags.table, validation.rows.front().why_not);
  return ExitCode::fine;
}

}  // namespace

void add_validate(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<ValidateFlags>();
  CLI::App* command = program.add_subcommand(
      "validate", describe("Predict each row of a table of measurements, and say how far off that is.",
                           {"ridgepoint validate collectives.csv",
                            "ridgepoint validate kernels.csv --out kernels.predicted.csv",
                            "ridgepoint validate products.csv --format md"}));
  command->add_option("TABLE", flags->table, "measurements in CSV; their cells may be empty")
      ->required()
      ->type_name("FILE.csv");
  command->add_option("--out", flags->out, "the table with its predictions and their 90 % bands")
      ->type_name("FILE.csv");
  add_format(*command, flags->format, {Format::text, Format::json, Format::markdown});
  command->callback([flags, &invocation] { invocation.run = [flags] { return validate(*flags); }; });
}

}  // namespace app::cli
