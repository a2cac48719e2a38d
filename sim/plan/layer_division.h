// Which layers of a scenario's model each piece of its pipeline has.
#pragma once
#include <vector>

#include "sim/plan/problem.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/scenario.h"

namespace sim {

// Pieces that the strategy cuts the model into.
std::int32_t pieces_of(const Strategy& s);

// The pipeline's ends have the layers that the strategy names for them; the others share the rest. Where the
// implementation balances the head (nanotron), the head counts as so many layers: its FLOPs, V h, over those
// of one layer's products.
LayerRange layers_of(const Scenario& s, std::int32_t piece);

// Why the model cannot be divided so.
std::vector<Problem> division_problems(const Scenario& s);

// Clears the fields that make some pieces larger than others, for models that have other numbers of the
// scenario's layers.
void divide_evenly(Scenario& s);

}  // namespace sim
