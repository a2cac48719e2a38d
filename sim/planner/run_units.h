// Runs the units of a pass on a clock in the order of stage programs' actions. Included by .cpp files only.
#pragma once
#include <algorithm>
#include <vector>

#include "sim/planner/lanes.h"
#include "sim/planner/pass_time.h"

namespace sim {

// Compute beside exchanges that follow each other without a gap. There is no gap where the host is ahead: an
// exchange begins as soon as the compute launched before it has ended and the stream is free.
template <class Time>
class BackToBack {
 public:
  explicit BackToBack(Interference interference)
      : slowdown_(interference.compute), beside_(1 - 1 / slowdown_), end_(everywhere<Time>(kNever)) {}
  SIM_INLINE void exchange(const Time&, const Time& end) { end_ = end; }
  SIM_INLINE Time done(const Time& start, Seconds work) const {
    return start + work + larger(smaller(end_ - start, work * slowdown_), Seconds{}) * beside_;
  }

 private:
  double slowdown_, beside_;
  Time end_;
};
template <class Time, bool kHost, std::size_t kHeld>
using UnitClock = StreamClock<Time, BackToBack<Time>, kHost, kHeld>;

// Runs steps on a clock with LanesOf<n>. With kAhead, the clock `gathers` gathers parameters before their
// units, whatever the pass does; else the pass gathers them.
template <std::size_t n, bool kHost, bool kAhead, class Clock>
class UnitRun {
 public:
  using Time = LanesOf<n>;
  UnitRun(Clock& clock, Clock& gathers, std::span<const TimedStep> steps, const HostWork& work,
          std::int32_t prefetch)
      : clock_(clock), gathers_(gathers), steps_(steps), work_(work), never_(everywhere<Time>(kNever)) {
    std::int32_t readers = 0;
    for (const TimedStep& s : steps) {
      readers += s.reads ? s.count : 0;
      gathers_any_ = gathers_any_ || s.gathers;
    }
    ahead_ = std::clamp(prefetch, 0, std::max(0, readers - 1));
    thread_local std::vector<Time> ends;  // kept from one pass to the next
    if (static_cast<std::int32_t>(ends.size()) <= ahead_) ends.resize(static_cast<std::size_t>(ahead_) + 1);
    gathered_ = ends.data();
    ring_ = ahead_ + 1;
  }

  SIM_INLINE void run() {
    if constexpr (kAhead) {  // all gathers go on beside compute
      Clock all = gathers_;
      for (const TimedStep& s : steps_)
        if (s.gathers) all.run(kCollectiveStream, repeated(s.gather, s.count));
      clock_.exchange_until(all.free(kCollectiveStream));
    }
    skip_others();
    for (const TimedStep& s : steps_) {
      if (s.count > 0)
        step(s);
      else
        send(s);
    }
  }

 private:
  SIM_INLINE void skip_others() {
    while (gather_step_ < steps_.size() && !steps_[gather_step_].reads) ++gather_step_;
  }
  SIM_INLINE void gather_next() {
    const TimedStep& s = steps_[gather_step_];
    Time& end = gathered_[next_end_];
    if (++next_end_ == ring_) next_end_ = 0;
    ++issued_;
    if (!s.gathers)
      end = never_;
    else if constexpr (kAhead)
      end = gathers_.run(kCollectiveStream, s.gather).end;
    else
      end = clock_.run(kCollectiveStream, s.gather, clock_.free(kComputeStream)).end;
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
      ready = gathered_[next_ready_];
      if (++next_ready_ == ring_) next_ready_ = 0;
      ++used_;
    }
    if (is_there(s.before)) compute(s.before, never_);
    compute(s.work, ready);
  }

  SIM_INLINE void step(const TimedStep& s) {
    const bool reduces = s.bucket > 0 && is_there(s.message);
    if (!reduces && !gathers_any_) return compute(repeated(in_turn(s.before, s.work), s.count), never_);
    std::int32_t waiting = s.waiting;
    for (std::int32_t done = 0; done < s.count; ++done) {
      unit(s);
      if (++waiting != s.bucket || !reduces) continue;
      send(s);
      waiting = 0;
    }
  }

  Clock& clock_;
  Clock& gathers_;
  std::span<const TimedStep> steps_;
  HostWork work_;
  Time never_;
  bool gathers_any_ = false;
  Time* gathered_ = nullptr;  // ends of gathers that were not waited for, in a ring
  std::int32_t ahead_ = 0, ring_ = 1, next_end_ = 0, next_ready_ = 0;
  std::size_t gather_step_ = 0;
  std::int32_t gather_in_step_ = 0, issued_ = 0, used_ = 0;
  bool begun_ = false;
};

}  // namespace sim
