// Tensors that an implementation makes beyond the operations' own, as its memory profile says. They are
// written as Operation::beside into a plan that already has its blocks.
#pragma once
#include "sim/plan/plan.h"

namespace sim {

void add_extra_tensors(Plan& plan);

}  // namespace sim
