// The price of a plan's operation by the tables of a GPU.
#pragma once
#include <optional>

#include "sim/cost/price.h"

namespace sim {

// Empty where no table has the operation's kind and type. `group` is the operation's where it is a
// collective.
std::optional<Price> gpu_price(const GpuCalibration& gpu, const Work& work, const Operation& op,
                               const Variables& v, const Hardware& hardware, const Group* group,
                               const KernelSoftware& software = {});

}  // namespace sim
