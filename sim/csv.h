// Comma-separated values after RFC 4180: quoted cells may hold commas, quotes ("" is one) and line breaks;
// lines end in LF or CRLF; a byte order mark is skipped.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sim {

struct CsvTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as the header

  std::optional<std::size_t> column(std::string_view name) const;
  // The text of one cell; empty where the table has no such column.
  std::string_view cell(std::size_t row, std::string_view column_name) const;
};

// Throws PresetError, whose message is one sentence that names the file and the line.
CsvTable csv_from_text(std::string_view text, const std::string& file);
std::string to_text(const CsvTable& table);

}  // namespace sim
