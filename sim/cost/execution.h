// When each action of a plan's programs begins and ends, from how long each takes.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
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

// Compute of one program that shares the device with what its other streams exchange.
class SharedDevice {
 public:
  explicit SharedDevice(double slowdown) : slowdown_(slowdown) {}
  void exchange(Seconds start, Seconds end);
  // When `work` that begins at `start` has been done. Later calls have later starts.
  Seconds done(Seconds start, Seconds work) {
    return first_ == busy_.size() ? start + work : done_beside_exchanges(start, work);
  }
  // The last exchange begins and ends so much later.
  void skip(Seconds start, Seconds end) {
    if (busy_.empty()) return;
    busy_.back().start += start;
    busy_.back().end += end;
  }

 private:
  struct Interval {
    Seconds start, end;
  };
  Seconds done_beside_exchanges(Seconds start, Seconds work);

  double slowdown_;
  std::vector<Interval> busy_;
  std::size_t first_ = 0;  // those before have ended
};

// The streams of one program and the host that launches them.
class DeviceClock {
 public:
  DeviceClock(Interference interference, bool transfers_in_order)
      : device_(interference.compute), transfers_in_order_(transfers_in_order) {}

  struct Span {
    Seconds start, end;
  };
  // `ready`: when what an action waits for has ended; `arrival`: when what it receives is there.
  Span run(std::int32_t stream, const ActionTime& time, Seconds ready = {}) {
    Seconds& free = free_[static_cast<std::size_t>(stream)];
    const Seconds host = ready_host(time.work);
    const Seconds start = std::max(free, ready);
    const Seconds alone =
        stream == kComputeStream ? device_.done(start, time.duration) : start + time.duration;
    const Seconds end = std::max(alone, host + time.host.ahead);
    if (stream == kCollectiveStream) device_.exchange(std::max(start, host), end);
    host_ = host + time.host.launches;
    free = end;
    return {start, end};
  }
  Span send(const ActionTime& time, Seconds ready);
  Span receive(const ActionTime& time, Seconds ready, Seconds arrival);

  // As if computing, collectives and the host had gone on for so much longer as they did last.
  void skip(Seconds compute, Seconds collective, Seconds host) {
    free_[kComputeStream] += compute;
    free_[kCollectiveStream] += collective;
    host_ += host;
    device_.skip(std::min(compute, collective), collective);
  }

  // As if what this clock has done since `before` were done so many times again. Where that makes the host
  // the latest, all that it launches comes as much later.
  void go_on(const DeviceClock& before, double times) {
    const DeviceClock now = *this;
    for (std::size_t i = 0; i < free_.size(); ++i) free_[i] += (free_[i] - before.free_[i]) * times;
    host_ += (host_ - before.host_) * times;
    if (host_ <= free(kComputeStream)) return;
    const Seconds late = host_ - now.free(kComputeStream);
    for (std::size_t i = 0; i < free_.size(); ++i) free_[i] = std::max(free_[i], now.free_[i] + late);
  }

  Seconds free(std::int32_t stream) const { return free_[static_cast<std::size_t>(stream)]; }
  Seconds host() const { return host_; }
  Seconds end() const { return std::max(host_, idle()); }  // of all

 private:
  Seconds idle() const { return *std::max_element(free_.begin(), free_.end()); }
  // Until the host launches an action that is no receive.
  Seconds ready_host(const HostWork& work) const {
    return (work.waits ? std::max(host_, idle()) : host_) + work.before;
  }

  SharedDevice device_;
  bool transfers_in_order_;
  std::array<Seconds, kStreams> free_{};
  Seconds host_;
};

// times[program][action]. Exact for any legal plan: an action begins when the one before it in its stream and
// the one that it waits for have ended; a receive ends when what it brings has been sent, whatever its
// duration. `transfers_in_order`: a send stands in the compute stream. Throws std::logic_error where programs
// wait for each other for ever.
Execution execute(const Plan& plan, const std::vector<std::vector<ActionTime>>& times,
                  bool transfers_in_order = false, Interference interference = {});

}  // namespace sim
