// A pass of a micro-batch as a whole: when streams are free after it, from when they were before.
//
// A clock's arithmetic is sums and maxima, so that what a pass does to four times - of compute, collectives,
// the host and sends - is said by how much later each is than each of those before, at least ("max-plus";
// Baccelli et al. 1992, Synchronization and Linearity). The clock that runs plans finds all of it at once:
// beside each other, in lanes, the pass begins where one of these is zero and all others were long ago.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "sim/cost/execution.h"

namespace sim {

// Actions that follow each other in one stream are one action: exact, for both device and host are sums and
// maxima. What the host does first is that of the first.
ActionTime in_turn(const ActionTime& first, const ActionTime& then);
ActionTime repeated(const ActionTime& action, std::int32_t times);
inline bool is_there(const ActionTime& t) {
  return t.duration.value > 0 || t.host.launches.value > 0;
}

// Where a device's streams and its host stand.
enum From : std::size_t { kFromCompute, kFromCollectives, kFromHost, kFromSends, kFroms };
using FromEach = std::array<Seconds, kFroms>;

// What gathers from the beginning of the step on come to, from where collectives and the host were before
// them.
struct GathersAhead {
  Seconds compute_from_collectives = kNever,
          compute_from_host = kNever;  // of the pass that reads what they bring
  Seconds collectives, collectives_from_host;
  Seconds launches;
};

struct PassTime {
  FromEach compute, collectives, host;  // after the pass; sends are where they were
  // More of compute while earlier collectives still run: a share of the time that they take from its
  // beginning on, and at most.
  double slower = 0;
  Seconds most_slower{};
  GathersAhead ahead{};
};

// What `count` units alike take, one after the other; a UnitStep (plan/pass_steps.h) with its prices.
struct TimedStep {
  ActionTime gather = {};   // of the parameters that it reads, if it gathers them
  ActionTime before = {};   // compute with no need of parameters
  ActionTime work = {};     // compute from where it reads them on
  ActionTime message = {};  // of gradients
  // With every so many units, of which so many were there before; 0: none.
  std::int32_t bucket = 0, waiting = 0;
  std::int32_t count = 1;  // 0: the message alone
  bool reads = false, gathers = false;
};

// How a pass begins.
struct PassBegin {
  bool gathers_in_pass = true;  // else from the beginning of the step on
  HostWork work = {};           // of the host before its first compute
  Interference interference = {};
  bool hosts = false;  // take part
};
// What a pass takes of compute and of collectives, whatever goes on before and beside it: its first gather
// begins when what was computed before has ended.
struct LeastOfPass {
  Seconds compute, collectives;
};
LeastOfPass least_of(std::span<const TimedStep> steps);

// `ahead`: how many units' parameters are gathered before they are needed.
PassTime time_pass(std::span<const TimedStep> steps, const PassBegin& begin, std::int32_t ahead);

}  // namespace sim
