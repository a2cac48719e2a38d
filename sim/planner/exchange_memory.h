// What passes gather of parameters and reduce of gradients beside their activations (ZeRO 2 and 3).
#pragma once
#include "sim/planner/pass_memory.h"
#include "sim/planner/state_memory.h"

namespace sim {

// A pass over a piece; there until the pass is asked for with another exchange. Found once for each and kept
// with the piece's memory: not for several threads at a time.
const PassMost& pass_with(const Exchange& exchange, Pass pass, const Piece& piece, const PieceMemory& memory,
                          const StateMemory& states);

}  // namespace sim
