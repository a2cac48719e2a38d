// Two reports joined by (phase, operation id), whatever their kinds.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sim/report/report.h"

namespace sim {

// Where a kernel of one report did the work of several operations (Row::fused_into), what the other report
// has for each of them is compared with it as one row.
struct ComparedRow {
  std::string id;
  Phase phase{};
  std::optional<Row> a, b;
  std::vector<Row>
      fused;  // the operations that the row holds beside its own, as the report that fused them has them
  std::optional<double> ratio() const;  // b / a duration
  std::string title() const;            // "layer.mlp.up.forward + gelu"
};

struct Comparison {
  Report a, b;                    // without rows' copies being needed: kept whole for metrics
  std::vector<ComparedRow> rows;  // longest first
  std::size_t joined = 0, only_a = 0, only_b = 0;  // operations, those that a row fuses counted
};

Comparison compare(const Report& a, const Report& b);

std::string to_json(const Comparison& c);
std::string to_csv(const Comparison& c);
std::string to_markdown(const Comparison& c);
std::string to_text(const Comparison& c);  // aligned columns for a terminal, units in the header

}  // namespace sim
