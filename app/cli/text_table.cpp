#include "app/cli/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace app::cli {

namespace {

// Columns that a terminal gives to UTF-8 text: bytes that do not continue a character.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, TextTable::Align align) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return align == TextTable::Align::left ? text + space : space + text;
}

}  // namespace

std::string TextTable::text(int indent) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    widths.push_back(width_of(columns[c].header));
    for (const auto& row : rows) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line(static_cast<std::size_t>(indent), ' ');
    for (std::size_t c = 0; c < columns.size(); ++c)
      line += (c == 0 ? "" : "  ") + padded(cell_of(c), widths[c], columns[c].align);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  add_line([&](std::size_t c) { return columns[c].header; });
  for (const auto& row : rows) add_line([&](std::size_t c) { return row[c]; });
  return out;
}

std::string TextTable::markdown() const {
  std::string out = "|";
  for (const Column& column : columns) out += ' ' + column.header + " |";
  out += "\n|";
  for (const Column& column : columns) out += column.align == Align::left ? "---|" : "---:|";
  out += '\n';
  for (const auto& row : rows) {
    out += '|';
    for (const std::string& cell : row) out += ' ' + cell + " |";
    out += '\n';
  }
  return out;
}

}  // namespace app::cli
