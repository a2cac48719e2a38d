#include "sim/validate/row_reader.h"

#include <algorithm>

namespace sim {
namespace {

// The most particular readers come first.
const std::vector<RowReader>& readers() {
  static const std::vector<RowReader> all{
      own_rows(),      inference_rows(), collective_rows(), kernel_rows(),      product_rows(),
      training_rows(), memory_rows(),    outcome_rows(),    memory_step_rows(), cost_rows()};
  return all;
}

}  // namespace

const RowReader* reader_of(const std::vector<std::string>& header) {
  for (const RowReader& reader : readers()) {
    const bool all = std::ranges::all_of(reader.needs, [&](std::string_view column) {
      return std::ranges::find(header, column) != header.end();
    });
    if (all) return &reader;
  }
  return nullptr;
}

std::string readable_tables() {
  std::string text;
  for (const RowReader& reader : readers()) {
    text += (text.empty() ? "" : "; ") + std::string(reader.what) + " (columns ";
    for (std::size_t i = 0; i < reader.needs.size(); ++i)
      text += (i > 0 ? ", " : "") + std::string(reader.needs[i]);
    text += ")";
  }
  return text;
}

}  // namespace sim
