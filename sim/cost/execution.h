// When each action of a plan's programs begins and ends, from how long each takes.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/units.h"
#include "sim/vectorize.h"

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

// Clocks run with one time, or with several beside each other (planner/lanes.h).
constexpr Seconds larger(Seconds a, Seconds b) {
  return a < b ? b : a;
}
constexpr Seconds smaller(Seconds a, Seconds b) {
  return b < a ? b : a;
}
inline constexpr Seconds kNever{-1e30};  // so long ago that nothing waits for it

// Compute of one program that shares the device with what its other streams exchange.
class SharedDevice {
 public:
  explicit SharedDevice(Interference interference) : slowdown_(interference.compute) {}
  void exchange(Seconds start, Seconds end);
  // When `work` that begins at `start` has been done. Later calls have later starts.
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
  std::size_t first_ = 0;  // those before have ended
};

// The streams of one program and the host that launches them. Device: SharedDevice, or one like it. Without
// kHost nothing waits for the host. kHeld: of the first so many streams.
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
  // `ready`: when what an action waits for has ended; `arrival`: when what it receives is there.
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

  // Something is exchanged beside compute until then.
  SIM_INLINE void exchange_until(const Time& end) {
    free_[kCollectiveStream] = larger(free_[kCollectiveStream], end);
    device_.exchange(end, end);
  }

  const Time& free(std::int32_t stream) const { return free_[static_cast<std::size_t>(stream)]; }
  Time& free(std::int32_t stream) { return free_[static_cast<std::size_t>(stream)]; }
  const Time& host() const { return host_; }
  Time& host() { return host_; }
  Time end() const { return larger(host_, idle()); }  // of all

 private:
  SIM_INLINE Time idle() const {
    Time latest = free_[0];
    for (std::size_t i = 1; i < kHeld; ++i) latest = larger(latest, free_[i]);
    return latest;
  }
  // Until the host launches an action that is no receive.
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

// times[program][action]. Exact for any legal plan: an action begins when the one before it in its stream and
// the one that it waits for have ended; a receive ends when what it brings has been sent, whatever its
// duration. `transfers_in_order`: a send stands in the compute stream. Throws std::logic_error where programs
// wait for each other for ever.
Execution execute(const Plan& plan, const std::vector<std::vector<ActionTime>>& times,
                  bool transfers_in_order = false, Interference interference = {});

}  // namespace sim
