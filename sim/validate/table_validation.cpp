#include "sim/validate/table_validation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "sim/preset_error.h"
#include "sim/quantile.h"
#include "sim/validate/table_words.h"

namespace sim {
namespace {

std::string number_text(double value) {
  char text[32];
  constexpr int kDigits = 6;
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, kDigits).ptr;
  return {text, end};
}

// Whether a run fitted: by its outcome, or by having been measured.
std::optional<bool> fitted(const CsvTable& table, std::size_t row) {
  const std::string_view outcome = table.cell(row, kOutcomeColumn);
  if (!outcome.empty()) return meaning("outcome", outcome) != "failed";
  const std::optional<double> peak = number_in(table.cell(row, "peak_memory_gb"));
  return peak ? std::optional<bool>(true) : std::nullopt;
}

struct Collected {
  ErrorSummary summary;
  std::vector<double> errors;
  std::size_t inside = 0;

  void add(const ValidatedRow& row, const std::optional<RowComparison>& comparison) {
    if (row.aside) {
      ++summary.aside;
      return;
    }
    ++summary.rows;
    if (!row.predictions.empty()) ++summary.predicted;
    if (!comparison) return;
    errors.push_back(comparison->error);
    if (comparison->inside()) ++inside;
  }

  void add_outcome(const ValidatedRow& row, std::optional<bool> did_fit) {
    const auto predicted = std::ranges::find(row.predictions, kOutcomeColumn, &Prediction::column);
    if (predicted == row.predictions.end() || !did_fit) return;
    const bool right = (predicted->words == kFits) == *did_fit;
    ++(*did_fit ? summary.fitted : summary.failed);
    if (right) ++(*did_fit ? summary.fitted_right : summary.failed_right);
  }

  ErrorSummary finish() {
    summary.compared = errors.size();
    if (errors.empty()) return summary;
    const auto n = static_cast<double>(errors.size());
    summary.bias = quantile(errors, 0.5);
    for (double& error : errors) error = std::abs(error);
    summary.median = quantile(errors, 0.5);
    summary.p90 = quantile(errors, 0.9);
    summary.mean = std::accumulate(errors.begin(), errors.end(), 0.0) / n;
    summary.inside_band = static_cast<double>(inside) / n;
    return summary;
  }
};

}  // namespace

double ErrorSummary::balanced_accuracy() const {
  const auto share = [](std::size_t right, std::size_t of) {
    return static_cast<double>(right) / static_cast<double>(of);
  };
  if (fitted == 0 && failed == 0) return 0;
  if (fitted == 0) return share(failed_right, failed);
  if (failed == 0) return share(fitted_right, fitted);
  return (share(fitted_right, fitted) + share(failed_right, failed)) / 2;
}

Validation validate_table(const CsvTable& table, const std::function<bool(std::size_t)>& go_on) {
  Validation validation{reader_of(table.header), std::vector<ValidatedRow>(table.rows.size())};
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    ValidatedRow& row = validation.rows[i];
    if (i > 0 && !go_on(i)) break;
    if (!validation.reader) {
      row.why_not = "no prediction is made of a table with these columns; there are: " + readable_tables();
      continue;
    }
    try {
      row.predictions = validation.reader->predict(TableRow(table, i, validation.reader->measured));
    } catch (const LeftAside& reason) {
      row.why_not = reason.what();
      row.aside = true;
    } catch (const CannotPredict& reason) {
      row.why_not = reason.what();
    } catch (const PresetError& reason) {  // of a preset that the row names
      row.why_not = reason.what();
    }
  }
  return validation;
}

std::optional<RowComparison> compare_row(const CsvTable& table, std::size_t row, const Validation& validation,
                                         std::string_view column) {
  if (!validation.reader) return std::nullopt;
  const std::vector<Prediction>& predictions = validation.rows[row].predictions;
  for (const MeasuredColumn& candidate : validation.reader->measured) {
    if (!column.empty() && candidate.name != column) continue;
    const auto prediction = std::ranges::find(predictions, candidate.name, &Prediction::column);
    const auto index = table.column(candidate.name);
    if (prediction == predictions.end() || !index) continue;
    const std::optional<double> measured = number_in(table.rows[row][*index]);
    if (!measured || !(*measured > 0)) continue;
    const double ratio = candidate.rate ? *measured / prediction->value : prediction->value / *measured;
    return RowComparison{candidate.name,  *measured,        prediction->value,
                         prediction->low, prediction->high, ratio - 1};
  }
  return std::nullopt;
}

CsvTable with_predictions(const CsvTable& table, const Validation& validation) {
  CsvTable out = table;
  const std::vector<MeasuredColumn> measured =
      validation.reader ? validation.reader->measured : std::vector<MeasuredColumn>{};
  for (const MeasuredColumn& column : measured)
    for (const std::string_view suffix : {"", "_low", "_high"})
      out.header.push_back("predicted_" + std::string(column.name) + std::string(suffix));
  out.header.emplace_back("why_not");
  for (std::size_t i = 0; i < out.rows.size(); ++i) {
    const ValidatedRow& row = validation.rows[i];
    for (const MeasuredColumn& column : measured) {
      const auto found = std::ranges::find(row.predictions, column.name, &Prediction::column);
      const bool any = found != row.predictions.end();
      const bool number = any && found->words.empty();
      out.rows[i].push_back(number ? number_text(found->value) : any ? std::string(found->words) : "");
      out.rows[i].push_back(number ? number_text(found->low) : "");
      out.rows[i].push_back(number ? number_text(found->high) : "");
    }
    out.rows[i].push_back(row.why_not);
  }
  return out;
}

std::vector<ErrorSummary> summarize(const CsvTable& table, const Validation& validation) {
  Collected all;
  std::vector<Collected> groups;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  const std::string_view source_column = validation.reader ? validation.reader->source : "source";
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const std::string source(table.cell(i, source_column)), name(table.cell(i, "gpu"));
    const std::string gpu = hardware_preset_of(name).value_or(name);
    const auto [at, added] = index.try_emplace({source, gpu}, groups.size());
    if (added) {
      groups.emplace_back();
      groups.back().summary.source = source;
      groups.back().summary.gpu = gpu;
    }
    const auto comparison = compare_row(table, i, validation);
    all.add(validation.rows[i], comparison);
    groups[at->second].add(validation.rows[i], comparison);
    const std::optional<bool> did_fit = fitted(table, i);
    all.add_outcome(validation.rows[i], did_fit);
    groups[at->second].add_outcome(validation.rows[i], did_fit);
  }
  std::vector<ErrorSummary> summaries{all.finish()};
  for (Collected& group : groups)
    if (group.summary.rows > 0) summaries.push_back(group.finish());
  return summaries;
}

}  // namespace sim
