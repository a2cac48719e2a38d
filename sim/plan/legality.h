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

// What is wrong with the model, and with the fields of strategy and workload each by itself: where nothing
// is, what a report's metrics are computed of stays in 64 bits. Says less than validate(): reports of runs
// that rules of plans have since come to refuse are still read. Never throws.
std::vector<Problem> problems_of_numbers(const Scenario& scenario);

// What a reader should know of a scenario that has a plan: sequences beyond the positions that a model was
// trained on. Never throws.
std::vector<Problem> remarks(const Scenario& scenario);

}  // namespace sim
