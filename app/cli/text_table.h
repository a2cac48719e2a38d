// A table with aligned columns for a terminal, and the same as Markdown.
#pragma once
#include <string>
#include <vector>

namespace app::cli {

struct TextTable {
  enum class Align { left, right };
  struct Column {
    std::string header;
    Align align = Align::right;
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;

  std::string text(int indent = 2) const;
  std::string markdown() const;
};

}  // namespace app::cli
