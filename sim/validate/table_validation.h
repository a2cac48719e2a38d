// Predictions of each row of a table of measurements, and how far they lie from what was measured.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/validate/row_reader.h"

namespace sim {

inline constexpr std::string_view kOutcomeColumn = "outcome", kFits = "fits", kDoesNotFit = "does not fit";

struct ValidatedRow {
  std::vector<Prediction> predictions;
  std::string why_not;  // where there are none
  bool aside = false;   // the reason is LeftAside (row.h)
};

struct Validation {
  const RowReader* reader = nullptr;  // null: no reader knows such a table, and every row says so
  std::vector<ValidatedRow> rows;
};

// Predicts all rows; never reads a measured cell. `go_on` is called after each row with the number of rows
// done. Once it says no, the other rows have no prediction.
Validation validate_table(
    const CsvTable& table,
    const std::function<bool(std::size_t done)>& go_on = [](std::size_t) { return true; });

// A row's measurement beside its prediction.
struct RowComparison {
  std::string_view column;
  double measured = 0, predicted = 0, low = 0, high = 0;
  double error = 0;  // defined as in ErrorSummary
  bool inside() const { return measured >= low && measured <= high; }
};
// Compares by the column, or by the first measured one that the row has; empty where a side is missing.
std::optional<RowComparison> compare_row(const CsvTable& table, std::size_t row, const Validation& validation,
                                         std::string_view column = {});

// The table with predicted_X, predicted_X_low, predicted_X_high for each measured column X, and why_not.
CsvTable with_predictions(const CsvTable& table, const Validation& validation);

// Errors of the rows that have both a prediction and a measurement, by their first measured column.
struct ErrorSummary {
  std::string source, gpu;                            // empty: of all
  std::size_t rows = 0, predicted = 0, compared = 0;  // of measurements
  std::size_t aside = 0;                              // rows that are not to be predicted
  // Quantiles of |error|, as fractions; error is predicted / measured - 1 of the time, or measured /
  // predicted - 1 of a rate. Bias is the median error.
  double median = 0, mean = 0, p90 = 0, bias = 0;
  double inside_band = 0;  // share of the measured that lie in the 90 % band
  // For predictions of whether runs fit: runs that fitted, and runs that ran out of memory or crashed; and
  // how many of each were predicted right.
  std::size_t fitted = 0, fitted_right = 0, failed = 0, failed_right = 0;
  double balanced_accuracy() const;  // mean share predicted right, over the outcomes that occur
};

// First the summary of all rows, then of each source and GPU in the order of their first rows.
std::vector<ErrorSummary> summarize(const CsvTable& table, const Validation& validation);

}  // namespace sim
