// When each action of a plan's programs begins and ends, from how long each takes.
#pragma once
#include <vector>

#include "sim/plan/plan.h"
#include "sim/units.h"

namespace sim {

struct ExecutedProgram {
  std::vector<Seconds> start, end;  // of each action
};

struct Execution {
  std::vector<ExecutedProgram> programs;
  Seconds duration;  // until the last action of all has ended
};

// durations[program][action]. Exact for any legal plan: an action begins when the one before it in its stream
// and the one that it waits for have ended; a receive ends when what it brings has been sent, whatever its
// duration. Throws std::logic_error where programs wait for each other for ever.
Execution execute(const Plan& plan, const std::vector<std::vector<Seconds>>& durations);

}  // namespace sim
