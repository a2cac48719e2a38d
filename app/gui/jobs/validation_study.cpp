#include "app/gui/jobs/validation_study.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "sim/file_text.h"
#include "sim/scenario/preset.h"
#include "sim/validate/memory_series.h"
#include "sim/validate/table_words.h"

namespace app::gui {
namespace {

std::size_t index_in(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  names.push_back(name);
  return names.size() - 1;
}

sim::CsvTable read_table(const std::filesystem::path& file) {
  const std::optional<std::string> text = sim::file_text(file);
  if (!text) throw sim::PresetError(file.string() + " cannot be read: is the path right?");
  return sim::comparable_table(sim::csv_from_text(*text, file.string()), file.string());
}

// The points of every measured column, and whose they are.
void collect(ValidatedTable& t) {
  for (std::size_t row = 0; row < t.table.rows.size(); ++row) {
    const std::string device(t.table.cell(row, "gpu"));
    t.row_source.push_back(index_in(t.sources, std::string(t.table.cell(row, t.validation.reader->source))));
    t.row_gpu.push_back(index_in(t.gpus, sim::hardware_preset_of(device).value_or(device)));
  }
  for (const sim::MeasuredColumn& column : t.validation.reader->measured) {
    ValidatedColumn collected{std::string(column.name), {}};
    for (std::size_t row = 0; row < t.table.rows.size(); ++row)
      if (const auto c = sim::compare_row(t.table, row, t.validation, column.name))
        collected.points.push_back({row, t.row_source[row], t.row_gpu[row], c->measured, c->predicted, c->low,
                                    c->high, difference(*c)});
    if (!collected.points.empty()) t.columns.push_back(std::move(collected));
  }
  // What rows are judged by stays first, unless few of them have it.
  std::size_t most = 0;
  for (const ValidatedColumn& column : t.columns) most = std::max(most, column.points.size());
  std::stable_partition(t.columns.begin(), t.columns.end(),
                        [&](const ValidatedColumn& column) { return 2 * column.points.size() >= most; });
}

}  // namespace

ValidatedTable validate_file(const std::filesystem::path& file,
                             const std::function<bool(std::size_t, std::size_t)>& go_on) {
  ValidatedTable result;
  result.name = file.filename().string();
  try {
    result.table = read_table(file);
    const std::size_t rows = result.table.rows.size();
    if (!sim::reader_of(result.table.header)) {
      result.failure = result.name +
                       " has none of the columns that make a table of measurements: there are " +
                       sim::readable_tables() + ".";
      return result;
    }
    result.validation =
        sim::validate_table(result.table, [&](std::size_t done) { return go_on(done, rows); });
    result.summaries = sim::summarize(result.table, result.validation);
    collect(result);
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

ValidationView ValidationStudies::study(const OpenedFiles& opened, const ValidationStudy::Course& course) {
  for (; finished_ < opened.size(); ++finished_) {
    const std::filesystem::path& file = opened[finished_];
    course.report(0, 0, file.filename().string());
    auto table =
        std::make_shared<const ValidatedTable>(validate_file(file, [&](std::size_t done, std::size_t of) {
          course.report(static_cast<std::int64_t>(done), static_cast<std::int64_t>(of),
                        file.filename().string());
          return !course.stopped();
        }));
    if (course.stopped()) break;
    const auto old = std::find_if(view_.tables.begin(), view_.tables.end(),
                                  [&](const auto& other) { return other->name == table->name; });
    if (old != view_.tables.end())
      *old = std::move(table);
    else
      view_.tables.push_back(std::move(table));
    course.show(view_);
  }
  return view_;
}

std::vector<std::filesystem::path> published_tables() {
  std::vector<std::pair<std::size_t, std::filesystem::path>> by_rows;
  std::error_code missing;
  for (const auto& entry :
       std::filesystem::directory_iterator(sim::preset_directory() / "published", missing)) {
    if (entry.path().extension() != ".csv") continue;
    try {
      const sim::CsvTable table = read_table(entry.path());
      if (sim::reader_of(table.header)) by_rows.emplace_back(table.rows.size(), entry.path());
    } catch (const sim::PresetError&) {
      by_rows.emplace_back(0, entry.path());  // its table says why it cannot be read
    }
  }
  std::sort(by_rows.begin(), by_rows.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<std::filesystem::path> files;
  for (auto& [rows, file] : by_rows) files.push_back(std::move(file));
  return files;
}

}  // namespace app::gui
