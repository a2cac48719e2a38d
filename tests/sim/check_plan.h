// Whether a plan can be executed as it stands.
#pragma once
#include <string>
#include <vector>

#include "sim/plan/plan.h"

namespace sim {

// One sentence a violation, empty where there is none:
// - operands name buffers, as many as their kind takes, of the sizes that its dimensions and variables ask
// for;
// - nothing is read before it is written: parameters, optimizer states, KV caches and inputs are there from
// the
//   beginning, scratch is gone when its action ends;
// - a scratch buffer belongs to one block;
// - an operation's id is unique in its block;
// - an action of one stream that uses what another stream writes begins after that has ended;
// - sections cover each program's actions in order.
std::vector<std::string> check(const Plan& plan);

}  // namespace sim
