// Two reports joined by (phase, operation id), whatever their kinds.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sim/report/report.h"

namespace sim {

struct ComparedRow {
  std::string id;
  Phase phase{};
  std::optional<Row> a, b;
  std::optional<double> ratio() const;  // b / a duration
};

struct Comparison {
  Report a, b;                    // without rows' copies being needed: kept whole for metrics
  std::vector<ComparedRow> rows;  // longest first
  std::size_t joined = 0, only_a = 0, only_b = 0;
};

Comparison compare(const Report& a, const Report& b);

std::string to_json(const Comparison& c);
std::string to_csv(const Comparison& c);
std::string to_markdown(const Comparison& c);
std::string to_text(const Comparison& c);  // aligned columns for a terminal, units in the header

}  // namespace sim
