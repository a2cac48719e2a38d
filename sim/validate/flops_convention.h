// The FLOPs that a table counts for a training step, from the words that state its convention.
#pragma once
#include <string_view>

#include "sim/scenario/scenario.h"
#include "sim/units.h"

namespace sim {

struct CountedFlops {
  Flops model, hardware;  // of a step, all devices; hardware: with what is computed a second time
  DType peak{};           // utilisation is of this type's dense peak
};

// `convention` is free text ("6N + 12Lhs", "96BsLh^2", "attention halved", "fp8 peak"). Where it says
// nothing, the framework's own formula is used.
CountedFlops counted_flops(const Scenario& scenario, std::string_view convention, std::string_view framework);

}  // namespace sim
