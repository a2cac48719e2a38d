#include "sim/planner/reserved_memory.h"

#include <algorithm>

#include "sim/plan/device_memory.h"

namespace sim {

Bytes reserved_memory(const Plan& plan) {
  Bytes most;
  plan_memory_of_all(plan, Addresses::none, [&](const MemoryPlan& memory) {
    most = std::max(most, device_memory(plan, memory).total());
  });
  return most;
}

}  // namespace sim
