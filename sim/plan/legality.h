// Which scenarios have a plan: every field's own range, and what fields ask of each other.
#pragma once
#include <vector>

#include "sim/plan/problem.h"
#include "sim/scenario/scenario.h"

namespace sim {

// Empty means that make_plan will work. Never throws.
std::vector<Problem> validate(const Scenario& scenario);

// What is wrong with the model alone, whatever it is to do.
std::vector<Problem> validate(const Model& model);

// What is wrong with the model, and with each field of strategy and workload by itself. Where nothing is, the
// numbers behind a report's metrics fit in 64 bits. It checks less than validate(), so that reports of runs
// that today's rules would refuse can still be read. Never throws.
std::vector<Problem> problems_of_numbers(const Scenario& scenario);

// What a reader should know of a scenario that has a plan: sequences beyond the positions that a model was
// trained on. Never throws.
std::vector<Problem> remarks(const Scenario& scenario);

}  // namespace sim
