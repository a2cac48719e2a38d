// Why a scenario has no plan, told field by field.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sim/format.h"

namespace sim {

// One reason why a scenario has no plan, beside the field that says it ("workload.seq_len").
struct Problem {
  std::string field;
  std::string message;
  bool operator==(const Problem&) const = default;
};
// The message is a sentence() of these parts.
template <class... Parts>
void add_problem(std::vector<Problem>& problems, std::string_view field, const Parts&... message) {
  problems.push_back({std::string(field), sentence(message...)});
}

}  // namespace sim
