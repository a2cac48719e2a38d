#include "sim/serving/speculative.h"

#include <cmath>

namespace sim {

double expected_tokens(double acceptance, std::int64_t length) {
  if (acceptance >= 1) return static_cast<double>(length + 1);
  return (1 - std::pow(acceptance, static_cast<double>(length + 1))) / (1 - acceptance);
}

double speculative_speedup(double acceptance, std::int64_t length, double draft_cost, double verify_cost) {
  return expected_tokens(acceptance, length) / (static_cast<double>(length) * draft_cost + verify_cost);
}

}  // namespace sim
