// ridgepoint validate: predicts each row of a table of measurements, and shows the errors.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "app/cli/command.h"
#include "app/cli/flags.h"
#include "app/cli/progress.h"
#include "app/cli/text_table.h"
#include "app/counted.h"
#include "sim/format.h"
#include "sim/validate/memory_series.h"
#include "sim/validate/ranking.h"
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

std::string summary_csv(const std::vector<sim::ErrorSummary>& summaries) {
  sim::CsvTable table;
  table.header = {"source",
                  "gpu",
                  "rows",
                  "predicted",
                  "compared",
                  "left_aside",
                  "median_percent",
                  "mean_percent",
                  "p90_percent",
                  "bias_percent",
                  "inside_90_percent_band_percent",
                  "outcome_balanced_accuracy_percent"};
  for (const sim::ErrorSummary& s : summaries) {
    const auto percent = [&](double fraction) {
      return s.compared > 0 ? fmt::format("{:.4g}", 100 * fraction) : std::string();
    };
    table.rows.push_back({s.source, s.gpu, fmt::format("{}", s.rows), fmt::format("{}", s.predicted),
                          fmt::format("{}", s.compared), fmt::format("{}", s.aside), percent(s.median),
                          percent(s.mean), percent(s.p90), percent(s.bias), percent(s.inside_band),
                          s.fitted + s.failed > 0 ? fmt::format("{:.4g}", 100 * s.balanced_accuracy()) : ""});
  }
  return to_text(table);
}

TextTable ranking_table(std::span<const sim::RankedGroup> groups) {
  TextTable table{{{"GPUs"}, {"models"}, {"configurations"}, {"tau"}, {"lost, median"}, {"lost, mean"}}, {}};
  const auto add = [&](const std::string& gpus, const sim::RankingSummary& s) {
    table.rows.push_back({gpus, fmt::format("{}", s.groups), fmt::format("{}", s.configurations),
                          fmt::format("{:.2f}", s.tau), sim::format_percent(s.lost_median),
                          sim::format_percent(s.lost_mean)});
  };
  for (const auto& [gpus, summary] : sim::summarize_by_gpus(groups)) add(fmt::format("{}", gpus), summary);
  return table;
}

std::string ranking_sentence(const sim::RankingSummary& ranking) {
  return fmt::format(
      "within a model and number of GPUs ({} of them, {} pairs): Kendall's tau {:.2f}; our first choice is "
      "slower than the best by {} in the median, {} on average\n",
      ranking.groups, ranking.pairs, ranking.tau, sim::format_percent(ranking.lost_median),
      sim::format_percent(ranking.lost_mean));
}

std::string ranking_text(std::span<const sim::RankedGroup> groups, Format format) {
  const TextTable table = ranking_table(groups);
  const std::string sentence = ranking_sentence(sim::summarize(groups));
  return format == Format::markdown ? "\n" + sentence + "\n" + table.markdown() : sentence + table.text();
}

nlohmann::ordered_json json_of(const sim::RankingSummary& s) {
  return {{"groups", s.groups},
          {"configurations", s.configurations},
          {"pairs", s.pairs},
          {"kendall_tau", s.tau},
          {"lost_by_first_choice_median_percent", 100 * s.lost_median},
          {"lost_by_first_choice_mean_percent", 100 * s.lost_mean}};
}

// The name of a row: its id, or its number from 1 where a table has no ids.
std::string row_name(const sim::CsvTable& table, std::size_t row) {
  const std::optional<std::size_t> id = table.column("id");
  return id ? table.rows[row][*id] : std::to_string(row + 1);
}

nlohmann::ordered_json ranking_json(const sim::CsvTable& table, std::span<const sim::RankedGroup> groups) {
  nlohmann::ordered_json json = json_of(sim::summarize(groups));
  for (const auto& [gpus, summary] : sim::summarize_by_gpus(groups)) {
    nlohmann::ordered_json entry = {{"gpus", gpus}};
    entry.update(json_of(summary));
    json["by_gpus"].push_back(std::move(entry));
  }
  for (const sim::RankedGroup& group : groups)
    json["by_group"].push_back({{"model", group.model},
                                {"gpus", group.gpus},
                                {"configurations", group.configurations},
                                {"pairs", group.pairs},
                                {"kendall_tau", group.tau()},
                                {"first_choice", row_name(table, group.chosen)},
                                {"best", row_name(table, group.best)},
                                {"lost_by_first_choice_percent", 100 * group.lost}});
  return json;
}

std::string summary_json(const sim::CsvTable& table, const sim::Validation& validation,
                         const std::vector<sim::ErrorSummary>& summaries,
                         std::span<const sim::RankedGroup> ranking) {
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
    if (s.aside > 0) entry["left_aside"] = s.aside;
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
  if (!ranking.empty()) json["ranking"] = ranking_json(table, ranking);
  return json.dump(2) + "\n";
}

// The rows without an error and the reasons, the commonest first.
std::string uncovered(const sim::Validation& validation) {
  std::map<std::pair<bool, std::string>, std::size_t> reasons;
  for (const sim::ValidatedRow& row : validation.rows)
    if (!row.why_not.empty()) ++reasons[{row.aside, row.why_not}];
  std::vector<std::pair<std::size_t, std::pair<bool, std::string>>> by_count;
  for (const auto& [reason, count] : reasons) by_count.emplace_back(count, reason);
  std::stable_sort(by_count.begin(), by_count.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  constexpr std::size_t kMostReasons = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMostReasons, by_count.size()); ++i) {
    const auto& [count, reason] = by_count[i];
    text += fmt::format("{} {}: {}\n", counted(static_cast<std::int64_t>(count), "row"),
                        reason.first ? "left aside" : "not predicted", reason.second);
  }
  if (by_count.size() > kMostReasons)
    text += fmt::format("{} further reasons: --out FILE.csv has them row by row\n",
                        by_count.size() - kMostReasons);
  return text;
}

ExitCode validate(const ValidateFlags& flags) {
  const sim::CsvTable table =
      sim::comparable_table(sim::csv_from_text(read_file(flags.table), flags.table), flags.table);
  const sim::Validation validation = sim::validate_table(table);
  if (!flags.out.empty()) write_file(flags.out, to_text(sim::with_predictions(table, validation)));
  const std::vector<sim::ErrorSummary> summaries = sim::summarize(table, validation);
  const std::vector<sim::RankedGroup> ranking = sim::rank(table, validation);
  switch (flags.format) {
    case Format::json:
      fmt::print("{}", summary_json(table, validation, summaries, ranking));
      break;
    case Format::markdown:
      fmt::print("{}", summary_table(summaries).markdown());
      break;
    case Format::csv:
      fmt::print("{}", summary_csv(summaries));
      break;
    default:
      fmt::print("{}", summary_table(summaries).text());
  }
  const bool has_sentences = flags.format == Format::text || flags.format == Format::markdown;
  if (!ranking.empty() && has_sentences) fmt::print("{}", ranking_text(ranking, flags.format));
  if (validation.reader && has_sentences) to_stderr(uncovered(validation));
  if (!validation.reader && !validation.rows.empty())
    to_stderr(fmt::format("ridgepoint: {}: {}\n", flags.table, validation.rows.front().why_not));
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
  add_format(*command, flags->format, {Format::text, Format::json, Format::csv, Format::markdown});
  command->callback([flags, &invocation] { invocation.run = [flags] { return validate(*flags); }; });
}

}  // namespace app::cli
