// Which layers of a scenario's model each piece of its pipeline has.
#pragma once
#include <vector>

#include "sim/plan/problem.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/scenario.h"

namespace sim {

// Pieces that the strategy cuts the model into.
std::int32_t pieces_of(const Strategy& s);

// Layers that the strategy names for the pipeline's ends are theirs; the other stages share the rest. With
// the head's cost counted where the implementation balances it (nanotron): as many layers as its FLOPs, V h
// against the products of one.
LayerRange layers_of(const Scenario& s, std::int32_t piece);

// Why the model cannot be divided so.
std::vector<Problem> division_problems(const Scenario& s);

// Forgets what makes some pieces larger than others: for models made of the scenario's layers by other
// counts.
void divide_evenly(Scenario& s);

}  // namespace sim
