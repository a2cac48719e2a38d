// When each action of a plan's programs begins and ends, from how long each takes.
#pragma once
#include <vector>

#include "sim/plan/plan.h"
#include "sim/units.h"

namespace sim {

// The host launches an action's operations one after the other, ahead of the device where it can. An action
// that begins at s with the host at h ends at max(s + its duration, h + ahead), and leaves the host at
// h + launches: exact, since a device runs what is launched in order.
struct HostTime {
  Seconds launches;  // until the last operation is launched
  Seconds ahead;     // the largest, over the operations, of host time up to one and device time from it on
};

// What the host does before it launches an action.
struct HostWork {
  Seconds before;      // work of its own
  bool waits = false;  // first until the device has nothing left to do; at a transfer: until it has ended
};

struct ActionTime {
  Seconds duration;
  HostTime host;
  HostWork work;
};

struct ExecutedProgram {
  std::vector<Seconds> start, end;  // of each action
};

struct Execution {
  std::vector<ExecutedProgram> programs;
  Seconds duration;  // until the last action of all has ended
};

// Compute and what is exchanged beside it share the device: while a collective runs, compute takes this many
// times as long.
struct Interference {
  double compute = 1;
};

// times[program][action]. Exact for any legal plan: an action begins when the one before it in its stream and
// the one that it waits for have ended; a receive ends when what it brings has been sent, whatever its
// duration. `transfers_in_order`: a send stands in the compute stream. Throws std::logic_error where programs
// wait for each other for ever.
Execution execute(const Plan& plan, const std::vector<std::vector<ActionTime>>& times,
                  bool transfers_in_order = false, Interference interference = {});

}  // namespace sim
