#include "sim/csv.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "sim/foreign_text.h"
#include "sim/preset_error.h"

namespace sim {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  bool at_end() const { return at_ >= text_.size(); }
  std::size_t line() const { return line_; }

  std::vector<std::string> record() {
    std::vector<std::string> cells;
    do cells.push_back(cell());
    while (take(','));
    if (!take_line_end() && !at_end()) fail(line_, "has a quoted cell that goes on after its closing quote");
    return cells;
  }

  [[noreturn]] void fail(std::size_t line, const std::string& what) const {
    throw PresetError(file_ + ": line " + std::to_string(line) + " " + what);
  }

 private:
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool take_line_end() {
    const std::size_t before = at_;
    take('\r');
    if (take('\n')) {
      ++line_;
      return true;
    }
    if (at_ != before && at_end()) return true;
    at_ = before;
    return false;
  }

  std::string cell() { return take('"') ? quoted() : plain(); }

  std::string plain() {
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] != ',' && text_[at_] != '\n') ++at_;
    std::size_t end = at_;
    if (end > begin && text_[end - 1] == '\r') at_ = --end;  // belongs to the line's end
    return std::string(text_.substr(begin, end - begin));
  }

  std::string quoted() {
    const std::size_t opened = line_;
    std::string cell;
    while (!at_end()) {
      const char c = text_[at_++];
      if (c == '"' && !take('"')) return cell;
      if (c == '\n') ++line_;
      cell += c;
    }
    fail(opened, "opens a quote that is never closed");
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0, line_ = 1;
};

void append_cell(std::string& out, const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) {
    out += cell;
    return;
  }
  out += '"';
  for (const char c : cell) out += c == '"' ? "\"\"" : std::string(1, c);
  out += '"';
}

void append_record(std::string& out, const std::vector<std::string>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) out += ',';
    append_cell(out, cells[i]);
  }
  out += '\n';
}

}  // namespace

std::optional<std::size_t> CsvTable::column(std::string_view name) const {
  const auto found = std::ranges::find(header, name);
  if (found == header.end()) return std::nullopt;
  return static_cast<std::size_t>(found - header.begin());
}

std::string_view CsvTable::cell(std::size_t row, std::string_view column_name) const {
  const std::optional<std::size_t> found = column(column_name);
  return found ? rows[row][*found] : std::string_view{};
}

CsvTable csv_from_text(std::string_view text, const std::string& file) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw PresetError(file + ": is no text, but has a zero at byte " + std::to_string(zero + 1) +
                      "; a table in CSV is expected");
  Reader reader(text, file);
  if (reader.at_end()) throw PresetError(file + ": is empty; a table in CSV with a header line is expected");
  CsvTable table;
  table.header = reader.record();
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    const std::string& column = table.header[i];
    if (column.empty())
      reader.fail(1, "must name every column, but column " + std::to_string(i + 1) + " has no name");
    if (!names.insert(column).second) reader.fail(1, "names column \"" + excerpt(column) + "\" twice");
  }
  while (!reader.at_end()) {
    const std::size_t line = reader.line();
    std::vector<std::string> cells = reader.record();
    const bool blank = cells.size() == 1 && cells[0].empty() && table.header.size() > 1;
    if (blank) continue;  // as after the last record
    if (cells.size() != table.header.size())
      reader.fail(line, "has " + std::to_string(cells.size()) + " cells where the header has " +
                            std::to_string(table.header.size()));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string to_text(const CsvTable& table) {
  std::string out;
  append_record(out, table.header);
  for (const std::vector<std::string>& row : table.rows) append_record(out, row);
  return out;
}

}  // namespace sim
