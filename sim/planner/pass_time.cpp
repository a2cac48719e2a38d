#include "sim/planner/pass_time.h"

#include <algorithm>

#include "sim/planner/run_units.h"

namespace sim {

ActionTime in_turn(const ActionTime& first, const ActionTime& then) {
  ActionTime both = first;
  both.duration = first.duration + then.duration;
  both.host.ahead = std::max(first.host.ahead + then.duration, first.host.launches + then.host.ahead);
  both.host.launches = first.host.launches + then.host.launches;
  return both;
}

ActionTime repeated(const ActionTime& action, std::int32_t times) {
  ActionTime all = action;
  if (times == 0) return {{}, {}, action.work};
  const double others = times - 1;
  // The device or the host is the slower one in each repetition alike: the first launch or the last decides.
  all.host.ahead = action.host.ahead + std::max(action.duration, action.host.launches) * others;
  all.duration = action.duration * times;
  all.host.launches = action.host.launches * times;
  return all;
}

namespace {

// Streams that a pass has: sends come last, and only hosts that wait for all look at them.
constexpr std::size_t kPassStreams = 3;
constexpr std::size_t kFromGathers = kFroms, kFromLaunches = kFroms + 1;  // lanes of GathersAhead
static_assert(kFromLaunches < kLanes && kSendStream < kPassStreams);

template <class Time>
FromEach row(const Time& time) {
  FromEach from;
  for (std::size_t i = 0; i < kFroms; ++i)
    from[i] = i < lanes_of<Time> && lane_of(time, i) > kNever * 0.5 ? lane_of(time, i) : kNever;
  return from;
}

template <std::size_t n, bool kHost, bool kAhead>
SIM_INLINE PassTime time_in_lanes(std::span<const TimedStep> steps, const PassBegin& begin,
                                  std::int32_t prefetch) {
  using Time = LanesOf<n>;
  using Clock = UnitClock<Time, kHost, kPassStreams>;
  const Clock before(begin.interference, false, everywhere<Time>(kNever));
  Clock clock = before, gathers = before;
  set_lane(clock.free(kComputeStream), kFromCompute, {});
  set_lane(clock.free(kCollectiveStream), kFromCollectives, {});
  if constexpr (kHost) {
    set_lane(clock.host(), kFromHost, {});
    set_lane(clock.free(kSendStream), kFromSends, {});
    set_lane(gathers.free(kCollectiveStream), kFromGathers, {});
    set_lane(gathers.host(), kFromLaunches, {});
  }
  UnitRun<n, kHost, kAhead, Clock>(clock, gathers, steps, begin.work, prefetch).run();
  PassTime pass{row(clock.free(kComputeStream)), row(clock.free(kCollectiveStream)), row(clock.host())};
  if constexpr (kAhead)
    pass.ahead = {
        lane_of(clock.free(kComputeStream), kFromGathers), lane_of(clock.free(kComputeStream), kFromLaunches),
        lane_of(gathers.free(kCollectiveStream), kFromGathers),
        lane_of(gathers.free(kCollectiveStream), kFromLaunches), lane_of(gathers.host(), kFromLaunches)};
  return pass;
}

PassTime time_on_device(std::span<const TimedStep> steps, const PassBegin& begin, std::int32_t prefetch) {
  return time_in_lanes<2, false, false>(steps, begin, prefetch);
}
SIM_MULTIVERSION
PassTime time_with_host(std::span<const TimedStep> steps, const PassBegin& begin, std::int32_t prefetch) {
  return time_in_lanes<kLanes, true, false>(steps, begin, prefetch);
}
SIM_MULTIVERSION
PassTime time_after_gathers(std::span<const TimedStep> steps, const PassBegin& begin, std::int32_t prefetch) {
  return time_in_lanes<kLanes, true, true>(steps, begin, prefetch);
}

}  // namespace

LeastOfPass least_of(std::span<const TimedStep> steps) {
  LeastOfPass least;
  for (const TimedStep& s : steps) {
    const bool is_first = least.collectives.value == 0 && least.compute.value == 0;
    if (s.gathers) {
      if (is_first) least.compute = std::max(Seconds{}, s.gather.duration - s.before.duration);
      least.collectives += s.gather.duration * s.count;
    }
    least.compute += (s.before.duration + s.work.duration) * s.count;
    const std::int32_t messages = s.count == 0 ? 1 : s.bucket > 0 ? (s.waiting + s.count) / s.bucket : 0;
    least.collectives += s.message.duration * messages;
  }
  return least;
}

PassTime time_pass(std::span<const TimedStep> steps, const PassBegin& begin, std::int32_t prefetch) {
  PassTime pass = !begin.gathers_in_pass ? time_after_gathers(steps, begin, prefetch)
                  : begin.hosts          ? time_with_host(steps, begin, prefetch)
                                         : time_on_device(steps, begin, prefetch);
  Seconds compute;
  bool gathers = false;
  for (const TimedStep& s : steps) {
    gathers = gathers || (begin.gathers_in_pass && s.gathers && is_there(s.gather));
    compute += (s.before.duration + s.work.duration) * s.count;
  }
  if (gathers) return pass;  // the first waits for earlier collectives
  const double slowdown = begin.interference.compute;
  pass.slower = 1 - 1 / slowdown;
  pass.most_slower = std::max(Seconds{}, compute * slowdown - pass.compute[kFromCompute]);
  return pass;
}

}  // namespace sim
