// A pass of a micro-batch as a whole: when streams are free after it, from when they were before.
//
// A pass moves four times: of compute, collectives, the host and sends. A clock's arithmetic is sums and
// maxima, so a table describes the pass: by how much each time after it exceeds each time before it, at least
// ("max-plus"; Baccelli et al. 1992, Synchronization and Linearity). The clock that runs plans finds it in
// one run of several lanes: in each lane one time begins at zero and all others lie long before.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "sim/cost/execution.h"

namespace sim {

// Joins actions that follow each other in one stream into one action. This is exact: the times of device and
// host are sums and maxima. The work that the host does first is that of the first action.
ActionTime in_turn(const ActionTime& first, const ActionTime& then);
ActionTime repeated(const ActionTime& action, std::int32_t times);
inline bool is_there(const ActionTime& t) {
  return t.duration.value > 0 || t.host.launches.value > 0;
}

// Where a device's streams and its host stand.
enum From : std::size_t { kFromCompute, kFromCollectives, kFromHost, kFromSends, kFroms };
using FromEach = std::array<Seconds, kFroms>;

// When gathers that start at the beginning of the step end, measured from where collectives and the host
// were before them.
struct GathersAhead {
  Seconds compute_from_collectives = kNever,
          compute_from_host = kNever;  // of the pass that reads what they bring
  Seconds collectives, collectives_from_host;
  Seconds launches;
};

struct PassTime {
  FromEach compute, collectives, host;  // after the pass; sends are where they were
  // Extra time of compute while earlier collectives still run: `slower` times the time that they run after
  // the pass begins, at most `most_slower`.
  double slower = 0;
  Seconds most_slower{};
  GathersAhead ahead{};
};

// What `count` units alike take, one after the other; a UnitStep (plan/pass_steps.h) with its prices.
struct TimedStep {
  ActionTime gather = {};   // of the parameters that it reads, if it gathers them
  ActionTime before = {};   // compute that needs no gathered parameters
  ActionTime work = {};     // compute from the first read of parameters on
  ActionTime message = {};  // of gradients
  // The message goes after every `bucket` units; `waiting` units came before this step. bucket 0: no message.
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
// Lower bounds of what a pass adds to the streams of compute and of collectives, whatever goes on before and
// beside it. Its first gather begins when the compute before it has ended.
struct LeastOfPass {
  Seconds compute, collectives;
};
LeastOfPass least_of(std::span<const TimedStep> steps);

// `ahead`: how many units' parameters are gathered before they are needed.
PassTime time_pass(std::span<const TimedStep> steps, const PassBegin& begin, std::int32_t ahead);

}  // namespace sim
