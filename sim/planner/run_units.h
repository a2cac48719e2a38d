// Runs the units of a pass by a clock, as stage programs have their actions. Included by .cpp files only.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "sim/planner/lanes.h"
#include "sim/planner/pass_time.h"

namespace sim {

// Compute beside exchanges that follow each other without a gap. They do where the host is ahead: what is
// exchanged begins as soon as the compute that was launched before has ended and the stream is free.
template <class Time>
class BackToBack {
 public:
  explicit BackToBack(Interference interference)
      : slowdown_(interference.compute), beside_(1 - 1 / slowdown_), end_(everywhere<Time>(kNever)) {}
  SIM_INLINE void exchange(const Time&, const Time& end) { end_ = end; }
  SIM_INLINE void skip(const Time& collectives) { end_ = end_ + collectives; }
  SIM_INLINE Time done(const Time& start, Seconds work) const {
    return start + work + larger(smaller(end_ - start, work * slowdown_), Seconds{}) * beside_;
  }

 private:
  double slowdown_, beside_;
  Time end_;
};
template <class Time, bool kHost, std::size_t kHeld>
using UnitClock = StreamClock<Time, BackToBack<Time>, kHost, kHeld>;

// Where a clock stands that gathers and reduces beside compute, or by how much it has moved. `ahead`: where
// that stands which gathers from the beginning of the step on.
template <std::size_t n>
struct Standing {
  LanesOf<n> compute, collectives, host, ahead;
  SIM_INLINE Standing operator-(const Standing& o) const {
    return {compute - o.compute, collectives - o.collectives, host - o.host, ahead - o.ahead};
  }

  SIM_INLINE static MaskOf<n> alike(const LanesOf<n>& a, const LanesOf<n>& b) {
    constexpr double kRounding = 1e-12;
    const LanesOf<n> d = a - b,
                     size = larger(larger(a, LanesOf<n>{} - a), larger(b, LanesOf<n>{} - b)) * kRounding;
    return (d <= size) & (LanesOf<n>{} - d <= size);
  }
  // Whether units that moved by these, as those before moved by `before`, and stand `at` this, go on so. The
  // clock is the same function of its times whatever the time is, so that what moved by the same in all does
  // so for ever. A time that moves more slowly than compute falls behind further, and decides nothing that it
  // does not decide now; one that moves faster has to be one that compute does not wait for.
  SIM_INLINE bool goes_on(const Standing& before, const Standing& at, bool exchanges, bool hosts,
                          bool ahead_of_step) const {
    MaskOf<n> on = alike(compute, before.compute);
    if (hosts) on = on & alike(host, before.host) & ((host <= compute) | alike(host, compute));
    if (ahead_of_step) on = on & ((ahead <= compute) | alike(ahead, compute));
    if (!exchanges)  // compute beside what is still exchanged is slower than it will be
      return all(on &
                 ((at.collectives <= at.compute) | (at.compute <= everywhere<LanesOf<n>>(kNever * 0.5))));
    const MaskOf<n> falls_behind = (compute <= collectives) & (at.compute <= at.collectives);
    return all(on & alike(collectives, before.collectives) & (alike(collectives, compute) | falls_behind));
  }
};

// Runs steps by a clock with LanesOf<n>. With kAhead, `gathers` is a clock that has gathered parameters
// before their units, whatever the pass does; else they are gathered in the pass.
template <std::size_t n, bool kHost, bool kAhead, class Clock>
class UnitRun {
 public:
  using Time = LanesOf<n>;
  UnitRun(Clock& clock, Clock& gathers, std::span<const TimedStep> steps, const PassBegin& begin)
      : clock_(clock), gathers_(gathers), steps_(steps), work_(begin.work), never_(everywhere<Time>(kNever)) {
    std::int32_t readers = 0;
    for (const TimedStep& s : steps) readers += s.reads ? s.count : 0;
    ahead_ = std::clamp(begin.prefetch, 0, std::max(0, readers - 1));
    thread_local std::vector<Time> ends;  // kept from one pass to the next
    if (static_cast<std::int32_t>(ends.size()) <= ahead_) ends.resize(static_cast<std::size_t>(ahead_) + 1);
    gathered_ = ends.data();
    ring_ = ahead_ + 1;
  }

  SIM_INLINE void run() {
    if constexpr (kAhead) {  // all gathers go on beside compute
      Clock all = gathers_;
      for (const TimedStep& s : steps_)
        if (s.reads && s.gather) all.run(kCollectiveStream, repeated(*s.gather, s.count));
      clock_.exchange_until(all.free(kCollectiveStream));
    }
    skip_others();
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].work || steps_[i].recompute)
        step(i);
      else
        send(steps_[i]);
    }
  }

 private:
  // Rounds of one unit each, or of as many as go in one message.
  struct Rounds {
    Standing<n> begin, moved;
    bool known = false;
  };

  SIM_INLINE Standing<n> standing() const {
    Standing<n> s;
    s.compute = clock_.free(kComputeStream);
    s.collectives = clock_.free(kCollectiveStream);
    if constexpr (kHost) s.host = clock_.host();
    if constexpr (kAhead) s.ahead = gathers_.free(kCollectiveStream);
    return s;
  }
  SIM_INLINE void skip_others() {
    while (gather_step_ < steps_.size() && !steps_[gather_step_].reads) ++gather_step_;
  }
  SIM_INLINE void gather_next() {
    const TimedStep& s = steps_[gather_step_];
    Time& end = gathered_[issued_++ % ring_];
    if (!s.gather)
      end = never_;
    else if constexpr (kAhead)
      end = gathers_.run(kCollectiveStream, *s.gather).end;
    else
      end = clock_.run(kCollectiveStream, *s.gather, clock_.free(kComputeStream)).end;
    if (++gather_in_step_ < s.count) return;
    gather_in_step_ = 0;
    ++gather_step_;
    skip_others();
  }
  SIM_INLINE void compute(const ActionTime& action, const Time& ready) {
    if (begun_) {
      clock_.run(kComputeStream, action, ready);
      return;
    }
    begun_ = true;
    ActionTime first = action;
    first.work = work_;
    clock_.run(kComputeStream, first, ready);
  }
  SIM_INLINE void send(const TimedStep& s) {
    clock_.run(kCollectiveStream, s.message, clock_.free(kComputeStream));
  }
  SIM_INLINE void unit(const TimedStep& s) {
    Time ready = never_;
    if (s.reads) {
      while (gather_step_ < steps_.size() && issued_ <= used_ + ahead_) gather_next();
      ready = gathered_[used_++ % ring_];
    }
    if (s.recompute) compute(*s.recompute, std::exchange(ready, never_));
    if (s.begin) compute(*s.begin, never_);
    if (s.zero) compute(*s.zero, never_);
    if (s.work) compute(*s.work, ready);
  }

  SIM_INLINE void step(std::size_t i) {
    const TimedStep& s = steps_[i];
    const bool gathers = s.gather && !kAhead, reduces = s.bucket > 0 && is_there(s.message);
    std::int32_t waiting = s.waiting;
    bool whole_round = waiting == 0;
    Rounds units{standing(), {}}, messages = units;
    for (std::int32_t done = 1; done <= s.count; ++done) {
      unit(s);
      ++waiting;
      const bool sends = reduces && waiting == s.bucket;
      if (sends) {
        send(s);
        waiting = 0;
      }
      if (done == s.count) return;
      // Gathers of what comes after these units are none that these repeat.
      const std::int32_t left = s.count - done - (s.reads ? ahead_ + 1 : 0);
      if (left <= 0 || (s.reads && gather_step_ != i)) continue;
      std::int32_t skipped = 0;
      if (!reduces || s.bucket == 1) {
        skipped = go_on(units, s, left, 1, gathers || reduces);
      } else if (sends) {
        if (whole_round) skipped = go_on(messages, s, left, s.bucket, true);
        if (!whole_round || skipped > 0) messages = {standing(), {}};
        whole_round = true;
        units = {standing(), {}};
      } else {
        skipped = go_on(units, s, std::min(left, s.bucket - waiting - 1), 1, gathers);
        waiting += skipped;
      }
      if (skipped > 0) units = {standing(), {}};
      done += skipped;
    }
  }

  // Units that do what those of the round that has just ended did: as many as are left, or none yet.
  SIM_INLINE std::int32_t go_on(Rounds& rounds, const TimedStep& s, std::int32_t left, std::int32_t of_round,
                                bool exchanges) {
    const Standing<n> now = standing(), moved = now - rounds.begin;
    const std::int32_t times = left / of_round;
    if (!rounds.known || times <= 0 ||
        !moved.goes_on(rounds.moved, now, exchanges, kHost, kAhead && s.gather)) {
      rounds = {now, moved, true};
      return 0;
    }
    const double more = times;
    const Time collectives = exchanges ? moved.collectives * more : Time{};
    clock_.skip(moved.compute * more, collectives, moved.host * more);
    if constexpr (kAhead) gathers_.skip(Time{}, moved.ahead * more, Time{});
    for (std::int32_t u = used_; u < issued_; ++u) {
      Time& end = gathered_[u % ring_];
      end = end + (kAhead ? moved.ahead * more : collectives);
    }
    if (s.reads) gather_in_step_ += times * of_round;
    return times * of_round;
  }

  Clock& clock_;
  Clock& gathers_;
  std::span<const TimedStep> steps_;
  HostWork work_;
  Time never_;
  Time* gathered_ = nullptr;  // ends of gathers that were not waited for, in a ring
  std::int32_t ahead_ = 0, ring_ = 1;
  std::size_t gather_step_ = 0;
  std::int32_t gather_in_step_ = 0, issued_ = 0, used_ = 0;  // of units that were not skipped
  bool begun_ = false;
};

}  // namespace sim
