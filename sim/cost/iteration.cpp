#include "sim/cost/iteration.h"

#include <cmath>

namespace sim {

void CostBreakdown::add(CostKind kind, Seconds expected, double relative_error) {
  parts[kind].expected += expected;
  parts[kind].above += expected * relative_error;
}

void CostBreakdown::add(CostKind kind, const Price& price, double times) {
  parts[kind].expected += price.seconds * times;
  parts[kind].above += (price.high - price.seconds) * times;
}

Seconds CostBreakdown::total() const {
  Seconds sum;
  for (const Part& part : parts) sum += part.expected;
  return sum;
}

double CostBreakdown::band() const {
  double squares = 0;
  for (const Part& part : parts) squares += part.above.value * part.above.value;
  const double sum = total().value;
  return sum > 0 ? 1 + std::sqrt(squares) / sum : 1;
}

CostBreakdown& CostBreakdown::operator+=(const CostBreakdown& o) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].expected += o.parts[i].expected;
    parts[i].above += o.parts[i].above;
  }
  return *this;
}

CostBreakdown CostBreakdown::operator*(double n) const {
  CostBreakdown scaled;
  for (std::size_t i = 0; i < parts.size(); ++i)
    scaled.parts[i] = {parts[i].expected * n, parts[i].above * n};
  return scaled;
}

}  // namespace sim
