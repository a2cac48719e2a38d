// What passes gather of parameters and reduce of gradients beside their activations (ZeRO 2 and 3), and
// gradients that begin with a pass.
#pragma once
#include "sim/planner/pass_memory.h"
#include "sim/planner/state_memory.h"

namespace sim {

// The most bytes at any step of a pass over a piece. `states`: whose sizes these are; the exchange says which
// of them matter. Found once for each exchange and kept with the piece's memory: not for several threads at a
// time.
double most_with(const Exchange& exchange, Pass pass, const Scenario& scenario, const Piece& piece,
                 const PieceMemory& memory, const StateMemory& states);

double bytes_of_layers(const UnitBytes& units, const Piece& piece);
// Accumulated gradients of a piece's units. `both_ends`: as Exchange has it.
double accumulated(const StateMemory& states, const Piece& piece, bool both_ends);

}  // namespace sim
