// When each action of a plan's programs begins and ends, from how long each takes.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/units.h"
#include "sim/vectorize.h"

namespace sim {

// The host launches an action's operations one after the other, ahead of the device where it can. Let an
// action begin at s while the host is free at h. The action ends at max(s + its duration, h + ahead), and the
// host is free again at h + launches. This is exact, since a device runs operations in launch order.
struct HostTime {
  Seconds launches;  // until the last operation is launched
  Seconds ahead;     // largest over operations: host time until one is launched + device time from it on
};

// What the host does before it launches an action.
struct HostWork {
  Seconds before;      // the host's own work
  bool waits = false;  // first waits until the device is idle; at a transfer: until the transfer has ended
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

// Compute and the collectives that run beside it share the device: while a collective runs, compute takes
// `compute` times as long.
struct Interference {
  double compute = 1;
};

// Clocks run with one time, or with several beside each other (planner/lanes.h).
constexpr Seconds larger(Seconds a, Seconds b) {
  return a < b ? b : a;
}
constexpr Seconds smaller(Seconds a, Seconds b) {
  return b < a ? b : a;
}
inline constexpr Seconds kNever{-1e30};  // so long ago that nothing waits for it

// The compute stream of one program, which shares the device with the collectives of its other streams.
class SharedDevice {
 public:
  explicit SharedDevice(Interference interference) : slowdown_(interference.compute) {}
  void exchange(Seconds start, Seconds end);
  // The time at which `work` that begins at `start` ends. Starts must not decrease from call to call.
  Seconds done(Seconds start, Seconds work) {
    return first_ == busy_.size() ? start + work : done_beside_exchanges(start, work);
  }

 private:
  struct Interval {
    Seconds start, end;
  };
  Seconds done_beside_exchanges(Seconds start, Seconds work);

  double slowdown_;
  std::vector<Interval> busy_;
  std::size_t first_ = 0;  // index into busy_: the intervals before it have ended
};

// The streams of one program and the host that launches them. Device: SharedDevice, or a class like it.
// Without kHost nothing waits for the host. kHeld: only the first kHeld streams are kept.
template <class Time, class Device, bool kHost = true, std::size_t kHeld = kStreams>
class StreamClock {
 public:
  StreamClock(Interference interference, bool transfers_in_order, const Time& begin = {})
      : device_(interference), transfers_in_order_(transfers_in_order), host_(begin) {
    free_.fill(begin);
  }

  struct Span {
    Time start, end;
  };
  // `ready`: when the actions that this one waits for have ended; `arrival`: when the data to receive comes.
  SIM_INLINE Span run(std::int32_t stream, const ActionTime& time, const Time& ready) {
    Time& free = free_[static_cast<std::size_t>(stream)];
    const Time host = ready_host(time.work), start = larger(free, ready);
    Time end = stream == kComputeStream ? device_.done(start, time.duration) : start + time.duration;
    if constexpr (kHost) end = larger(end, host + time.host.ahead);
    if (stream == kCollectiveStream) device_.exchange(kHost ? larger(start, host) : start, end);
    launch(host, time);
    free = end;
    return {start, end};
  }
  SIM_INLINE Span run(std::int32_t stream, const ActionTime& time) {
    return run(stream, time, free_[static_cast<std::size_t>(stream)]);
  }
  SIM_INLINE Span send(const ActionTime& time, const Time& ready) {
    Time& free = free_[transfers_in_order_ ? kComputeStream : kSendStream];
    const Time host = ready_host(time.work), start = after(larger(free, ready), host);
    Time end = start + time.duration;
    if constexpr (kHost) end = larger(end, host + time.host.ahead);
    launch(host, time);
    if (kHost && time.work.waits) host_ = larger(host_, end);
    free = end;
    return {start, end};
  }
  SIM_INLINE Span receive(const ActionTime& time, const Time& ready, const Time& arrival) {
    Time& free = free_[kComputeStream];
    const Time host = kHost ? host_ + time.work.before : host_;
    const Time start = after(larger(free, ready), host), end = larger(start, arrival);
    launch(host, time);
    if (kHost && time.work.waits) host_ = larger(host_, end);
    free = end;
    return {start, end};
  }

  // Marks the collective stream as busy until `end`.
  SIM_INLINE void exchange_until(const Time& end) {
    free_[kCollectiveStream] = larger(free_[kCollectiveStream], end);
    device_.exchange(end, end);
  }

  const Time& free(std::int32_t stream) const { return free_[static_cast<std::size_t>(stream)]; }
  Time& free(std::int32_t stream) { return free_[static_cast<std::size_t>(stream)]; }
  const Time& host() const { return host_; }
  Time& host() { return host_; }
  Time end() const { return larger(host_, idle()); }  // of all streams and the host

 private:
  SIM_INLINE Time idle() const {
    Time latest = free_[0];
    for (std::size_t i = 1; i < kHeld; ++i) latest = larger(latest, free_[i]);
    return latest;
  }
  // When the host is ready to launch an action that is not a receive.
  SIM_INLINE Time ready_host(const HostWork& work) const {
    if constexpr (!kHost) return host_;
    return (work.waits ? larger(host_, idle()) : host_) + work.before;
  }
  SIM_INLINE Time after(const Time& ready, const Time& host) const {
    if constexpr (!kHost) return ready;
    return larger(ready, host);
  }
  SIM_INLINE void launch(const Time& host, const ActionTime& time) {
    if constexpr (kHost) host_ = host + time.host.launches;
  }

  Device device_;
  bool transfers_in_order_;
  std::array<Time, kHeld> free_{};
  Time host_;
};
using DeviceClock = StreamClock<Seconds, SharedDevice>;

// times[program][action]. Exact for any legal plan: an action begins when the action before it in its stream
// and those that it waits for have ended. A receive ends when its data has been sent, whatever its own
// duration. `transfers_in_order`: sends run in the compute stream. Throws std::logic_error where programs
// wait for each other for ever.
Execution execute(const Plan& plan, const std::vector<std::vector<ActionTime>>& times,
                  bool transfers_in_order = false, Interference interference = {});

}  // namespace sim
