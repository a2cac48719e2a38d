#include "app/gui/figures/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "sim/csv.h"

namespace app::gui {
namespace {

// As many digits as read back to the same number.
std::string exact(double value) {
  if (!std::isfinite(value)) return "";
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end.ptr};
}

std::string exact(const Cell& cell) {
  if (const auto* number = std::get_if<double>(&cell)) return exact(*number);
  const auto* words = std::get_if<std::string>(&cell);
  return words ? *words : "";
}

std::string replaced(std::string words, std::string_view what, char by) {
  for (char& c : words)
    if (what.find(c) != std::string_view::npos) c = by;
  return words;
}

// `write` appends a table; titles part several of them.
template <class Write>
std::string joined(std::span<const Figure> figures, std::string_view before_title, Write write) {
  std::string text;
  for (const Figure& figure : figures) {
    if (!text.empty()) text += '\n';
    if (figures.size() > 1) text.append(before_title).append(figure.title).append("\n");
    write(text, table_of(figure));
  }
  return text;
}

}  // namespace

std::string column_key(const FigureColumn& column) {
  std::string key;
  for (const char c : column.name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!key.empty() && key.back() != '_')
      key += '_';
  while (key.ends_with('_')) key.pop_back();
  const std::string_view unit = unit_of(column.measure);
  if (!unit.empty() && !key.ends_with(unit)) key.append("_").append(unit);
  return key;
}

std::string cell_text(const Cell& cell, Measure measure) {
  if (const auto* number = std::get_if<double>(&cell)) return text_of(*number, measure);
  return exact(cell);
}

std::string to_csv(std::span<const Figure> figures) {
  return joined(figures, "# ", [](std::string& text, const FigureTable& table) {
    sim::CsvTable csv;
    for (const FigureColumn& column : table.columns) csv.header.push_back(column_key(column));
    for (const auto& row : table.rows) {
      csv.rows.emplace_back();
      for (const Cell& cell : row) csv.rows.back().push_back(exact(cell));
    }
    text += sim::to_text(csv);
  });
}

std::string to_tsv(std::span<const Figure> figures) {
  return joined(figures, "", [](std::string& text, const FigureTable& table) {
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      text.append(i > 0 ? "\t" : "").append(column_key(table.columns[i]));
    text += '\n';
    for (const auto& row : table.rows) {
      for (std::size_t i = 0; i < row.size(); ++i)
        text.append(i > 0 ? "\t" : "").append(replaced(exact(row[i]), "\t\r\n", ' '));
      text += '\n';
    }
  });
}

std::string to_markdown(std::span<const Figure> figures) {
  return joined(figures, "### ", [](std::string& text, const FigureTable& table) {
    const auto cell = [](std::string words) {
      words = replaced(std::move(words), "\r\n", ' ');
      for (std::size_t at = 0; (at = words.find('|', at)) != std::string::npos; at += 2)
        words.insert(at, 1, '\\');
      return words;
    };
    if (!text.empty()) text += '\n';
    text += '|';
    for (const FigureColumn& column : table.columns) text.append(" ").append(cell(column.name)).append(" |");
    text += "\n|";
    for (const FigureColumn& column : table.columns)
      text += column.measure == Measure::words ? " --- |" : " ---: |";
    for (const auto& row : table.rows) {
      text += "\n|";
      for (std::size_t i = 0; i < row.size(); ++i)
        text.append(" ").append(cell(cell_text(row[i], table.columns[i].measure))).append(" |");
    }
    text += '\n';
  });
}

std::string escaped(std::string_view words) {
  std::string result;
  for (const char c : words) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        // XML 1.0 has no control characters but these.
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\t' || c == '\n') result += c;
    }
  }
  return result;
}

}  // namespace app::gui
