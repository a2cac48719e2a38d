// Two reports joined by (phase, operation id), whatever their kinds.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sim/report/report.h"

namespace sim {

// Where a kernel of one report did the work of several operations (Row::fused_into), the other report's rows
// of these operations are compared with it as one row.
struct ComparedRow {
  std::string id;
  Phase phase{};
  std::optional<Row> a, b;
  std::vector<Row>
      fused;  // rows of the other operations that this row holds, from the report that fused them
  std::optional<double> ratio() const;  // b / a duration
  std::string title() const;            // "layer.mlp.up.forward + gelu"
};

struct Comparison {
  Report a, b;                                     // kept whole, since metrics are functions of a report
  std::vector<ComparedRow> rows;                   // longest first
  std::size_t joined = 0, only_a = 0, only_b = 0;  // operations, including those fused into a row
};

Comparison compare(const Report& a, const Report& b);

std::string to_json(const Comparison& c);
std::string to_csv(const Comparison& c);
std::string to_markdown(const Comparison& c);
std::string to_text(const Comparison& c);  // aligned columns for a terminal, units in the header

}  // namespace sim
