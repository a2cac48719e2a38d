// One row of a table of measurements, as code that predicts it may read it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>

#include "sim/csv.h"

namespace sim {

struct Scenario;

// A row that cannot be predicted; the message says why, in a sentence without its full stop.
struct CannotPredict : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A row that is not meant to be predicted: nobody measured what it says, or it lacks what a prediction starts
// from.
struct LeftAside : CannotPredict {
  using CannotPredict::CannotPredict;
};

// A row whose model cannot be divided as its strategy says.
struct IllegalStrategy : CannotPredict {
  using CannotPredict::CannotPredict;
};
// Throws one of these two where the row's scenario has a problem.
void require_legal(const Scenario& scenario);

// A column that is predicted. The error of a rate is that of the time behind it: measured / predicted - 1.
struct MeasuredColumn {
  std::string_view name;
  bool rate = false;
};

class TableRow {
 public:
  TableRow(const CsvTable& table, std::size_t row, std::span<const MeasuredColumn> measured)
      : table_(table), row_(row), measured_(measured) {}

  // A cell's text; empty where the table has no such column. Throws std::logic_error for a measured column.
  std::string_view text(std::string_view column) const;
  // Each throws CannotPredict, naming the column, where the cell is no number.
  std::optional<double> number_if_given(std::string_view column) const;
  std::optional<std::int64_t> count_if_given(std::string_view column) const;  // a whole number above 0
  std::int64_t count(std::string_view column) const;                          // must be given
  std::optional<bool> flag_if_given(std::string_view column) const;           // y, yes, true, 1
  double number(std::string_view column) const;                               // must be given
  double positive(std::string_view column) const;                             // and be above zero

 private:
  const CsvTable& table_;
  std::size_t row_;
  std::span<const MeasuredColumn> measured_;
};

// The whole of a cell as a number; empty where it is none.
std::optional<double> number_in(std::string_view cell);

}  // namespace sim
