// What an implementation's memory profile says it makes beyond the operations' own tensors, written into a
// plan that has its blocks: as Operation::beside.
#pragma once
#include "sim/plan/plan.h"

namespace sim {

void add_extra_tensors(Plan& plan);

}  // namespace sim
