// What passes gather of parameters and reduce of gradients beside their activations (ZeRO 2 and 3).
#pragma once
#include <array>

#include "sim/planner/pass_memory.h"
#include "sim/planner/state_memory.h"

namespace sim {

// The passes over a piece, by Pass. Found once for each exchange and kept with the piece's memory: not for
// several threads at a time.
const std::array<PassMost, 4>& passes_with(const Exchange& exchange, const Piece& piece,
                                           const PieceMemory& memory, const StateMemory& states);

}  // namespace sim
