// Tables of measurements, predicted row by row off the interface's thread.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sim/validate/table_validation.h"

namespace app::gui {

// A measurement beside its prediction.
struct ValidationPoint {
  std::size_t row = 0;     // of the table
  std::size_t source = 0;  // index into ValidatedTable::sources
  std::size_t gpu = 0;     // index into ValidatedTable::gpus
  double measured = 0, predicted = 0, low = 0, high = 0, error = 0;
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
  std::string current;                                        // file that is being predicted; empty: none
  std::size_t done = 0, of = 0;                               // of its rows
};

class ValidationJob {
 public:
  // `wake` is called from the worker when there is something new to draw.
  explicit ValidationJob(std::function<void()> wake);
  ~ValidationJob();
  ValidationJob(const ValidationJob&) = delete;
  ValidationJob& operator=(const ValidationJob&) = delete;

  // Behind what was added before. A table of the same file takes the old one's place.
  void add(std::filesystem::path file);
  std::shared_ptr<const ValidationView> view() const;
  // Until all that was added is predicted: for pictures and tests, never for the window.
  void wait() const;

 private:
  void work(const std::stop_token& stop);
  void publish(const std::function<void(ValidationView&)>& change);

  std::function<void()> wake_;
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::deque<std::filesystem::path> waiting_;
  bool busy_ = false;
  std::shared_ptr<const ValidationView> view_ = std::make_shared<ValidationView>();
  std::jthread worker_;
};

// The tables of presets/published that a reader knows, those with most rows first: the first one is shown.
std::vector<std::filesystem::path> published_tables();

}  // namespace app::gui
