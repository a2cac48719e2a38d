#include "app/cli/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/format.h"

namespace app::cli {

namespace {

std::string padded(const std::string& text, std::size_t width, TextTable::Align align) {
  const std::string space(width - std::min(width, sim::columns_of(text)), ' ');
  return align == TextTable::Align::left ? text + space : space + text;
}

}  // namespace

std::string TextTable::text(int indent) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    widths.push_back(sim::columns_of(columns[c].header));
    for (const auto& row : rows) widths[c] = std::max(widths[c], sim::columns_of(row[c]));
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
