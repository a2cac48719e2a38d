// Tables of measurements, predicted row by row.
#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/gui/jobs/study.h"
#include "sim/validate/table_validation.h"

namespace app::gui {

// Errors are of the quantity itself, be it a time or a rate: what is predicted too low is below zero.
inline double difference(const sim::RowComparison& row) {
  return row.predicted / row.measured - 1;
}

// A measurement beside its prediction.
struct ValidationPoint {
  std::size_t row = 0;     // of the table
  std::size_t source = 0;  // index into ValidatedTable::sources
  std::size_t gpu = 0;     // index into ValidatedTable::gpus
  double measured = 0, predicted = 0, low = 0, high = 0;
  double error = 0;  // difference()
  bool inside() const { return measured >= low && measured <= high; }
};

struct ValidatedColumn {
  std::string name;  // "step_time_s"
  std::vector<ValidationPoint> points;
};

struct ValidatedTable {
  std::string name;     // of the file
  std::string failure;  // why it could not be read or predicted; the rest is empty then
  sim::CsvTable table;
  sim::Validation validation;
  std::vector<sim::ErrorSummary> summaries;
  std::vector<std::string> sources, gpus;  // in the order of their first rows
  std::vector<std::size_t> row_source, row_gpu;
  std::vector<ValidatedColumn> columns;  // those with points; what rows are judged by first
};

// Reads and predicts one file. `go_on` as validate_table() has it, with the rows of the whole table. Never
// throws: what went wrong is the table's failure.
ValidatedTable validate_file(const std::filesystem::path& file,
                             const std::function<bool(std::size_t done, std::size_t of)>& go_on);

struct ValidationView {
  std::vector<std::shared_ptr<const ValidatedTable>> tables;  // finished
};
// All that were opened, in that order; one that is opened again is there again.
using OpenedFiles = std::vector<std::filesystem::path>;
using ValidationStudy = Study<OpenedFiles, ValidationView>;

// Predicts one table after the other, and none twice. The last of several files of one name takes the others'
// place. The parts of a course are the rows of the table that it names.
class ValidationStudies {
 public:
  ValidationView study(const OpenedFiles& opened, const ValidationStudy::Course& course);

 private:
  ValidationView view_;
  std::size_t finished_ = 0;  // of the opened files
};

// The tables of presets/published that a reader knows, those with most rows first: the first one is shown.
std::vector<std::filesystem::path> published_tables();

}  // namespace app::gui
