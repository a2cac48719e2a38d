// Which scenarios have a plan: every field's own range, and what fields ask of each other.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sim/format.h"
#include "sim/scenario/scenario.h"

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

// Empty means that make_plan will work. Never throws.
std::vector<Problem> validate(const Scenario& scenario);

// What is wrong with the model alone, whatever it is to do.
std::vector<Problem> validate(const Model& model);

}  // namespace sim
