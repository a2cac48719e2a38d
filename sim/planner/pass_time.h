// A pass of a micro-batch through a piece of the model as one action, or with what is exchanged beside it.
#pragma once
#include <vector>

#include "sim/cost/execution.h"

namespace sim {

// Actions that follow each other in one stream are one action: exact, for both device and host are sums and
// maxima. What the host does first is that of the first.
ActionTime in_turn(const ActionTime& first, const ActionTime& then);
ActionTime repeated(const ActionTime& action, std::int32_t times);

// Work on units (embedding, layers, head), one after the other; `count` units alike.
struct UnitStep {
  ActionTime compute;
  // Of a unit's parameters, before it (ZeRO 3), and of its gradients, after it; zero duration and no
  // launches: none.
  ActionTime gather, reduce;
  std::int32_t count = 1;
};
inline bool is_there(const ActionTime& t) {
  return t.duration.value > 0 || t.host.launches.value > 0;
}

// Runs the steps: parameters are gathered so many units ahead. Units alike are run until each takes as long
// as the one before, and the rest is added.
void run_pass(DeviceClock& clock, const std::vector<UnitStep>& steps, std::int32_t prefetch);

// All of its compute as one action, exchanges left out.
ActionTime compute_of(const std::vector<UnitStep>& steps);

}  // namespace sim
