// The FLOPs that a table counts for a training step, by the words with which it says so.
#pragma once
#include <string_view>

#include "sim/scenario/scenario.h"
#include "sim/units.h"

namespace sim {

struct CountedFlops {
  Flops model, hardware;  // of a step, all devices; hardware: with what is computed a second time
  DType peak{};           // utilisation is of this type's dense peak
};

// `convention` is free text ("6N + 12Lhs", "96BsLh^2", "attention halved", "fp8 peak"); where it is silent
// the framework's own formula is taken.
CountedFlops counted_flops(const Scenario& scenario, std::string_view convention, std::string_view framework);

}  // namespace sim
