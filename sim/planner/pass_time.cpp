#include "sim/planner/pass_time.h"

#include <algorithm>
#include <array>
#include <cmath>

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

ActionTime compute_of(const std::vector<UnitStep>& steps) {
  ActionTime all;
  for (const UnitStep& s : steps) {
    const ActionTime unit = is_there(s.before) ? in_turn(s.before, s.compute) : s.compute;
    all = in_turn(all, repeated(is_there(s.recompute) ? in_turn(s.recompute, unit) : unit, s.count));
  }
  if (!steps.empty()) {
    UnitStep first = steps.front();
    all.work = first_of(first).work;
  }
  return all;
}

namespace {

// Where the streams stand.
struct State {
  Seconds compute, collective, host;
};
State state_of(const DeviceClock& clock) {
  return {clock.free(kComputeStream), clock.free(kCollectiveStream), clock.host()};
}
State operator-(const State& a, const State& b) {
  return {a.compute - b.compute, a.collective - b.collective, a.host - b.host};
}
bool alike(Seconds a, Seconds b) {
  constexpr double kRounding = 1e-12;
  return std::abs(a.value - b.value) <= kRounding * std::max(std::abs(a.value), std::abs(b.value));
}

// Whether units that took `now`, as the one before did, will go on so: what lags behind does not catch up
// with what it does not wait for.
bool goes_on(const State& now, const State& before, const State& at, bool exchanges) {
  if (!alike(now.compute, before.compute) || !alike(now.host, before.host)) return false;
  if (now.host > now.compute && !alike(now.host, now.compute)) return false;
  // Compute beside what is still exchanged is slower than it will be.
  if (!exchanges) return at.collective <= at.compute;
  if (!alike(now.collective, before.collective)) return false;
  return alike(now.collective, now.compute) || (now.collective > now.compute && at.collective > at.compute);
}

void run_step(DeviceClock& clock, const UnitStep& s, bool begins_gradients, Seconds ready) {
  if (is_there(s.recompute)) {
    const ActionTime rest = in_turn(s.before, s.compute);
    if (!begins_gradients) {
      clock.run(kComputeStream, in_turn(s.recompute, rest), ready);
      return;
    }
    clock.run(kComputeStream, s.recompute, ready);
    clock.run(kComputeStream, s.begin);
    clock.run(kComputeStream, rest);
    return;
  }
  if (begins_gradients) clock.run(kComputeStream, s.begin);
  if (is_there(s.before)) clock.run(kComputeStream, s.before);
  clock.run(kComputeStream, s.compute, ready);
}

constexpr Seconds kLongAgo{-1e30};
constexpr std::size_t kMostAhead =
    16;  // gathers that have not been waited for, beyond which they do not matter

}  // namespace

void run_pass(DeviceClock& clock, const std::vector<UnitStep>& steps, std::int32_t prefetch,
              PassPlace place) {
  const auto ahead = std::min<std::size_t>(static_cast<std::size_t>(std::max(0, prefetch)), kMostAhead - 1);
  std::array<Seconds, kMostAhead> gathered{};  // ends, by unit modulo
  std::size_t gather_step = 0, issued = 0, user = 0;
  std::int32_t gather_in_step = 0;
  const auto skip_others = [&] {
    while (gather_step < steps.size() && !steps[gather_step].reads) ++gather_step;
  };
  skip_others();
  const auto gather_next = [&] {
    const UnitStep& s = steps[gather_step];
    gathered[issued % kMostAhead] =
        is_there(s.gather) ? clock.run(kCollectiveStream, s.gather, clock.free(kComputeStream)).end
                           : kLongAgo;
    ++issued;
    if (++gather_in_step == s.count) {
      gather_in_step = 0;
      ++gather_step;
      skip_others();
    }
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const UnitStep& s = steps[i];
    const bool exchanges = is_there(s.gather) || is_there(s.reduce);
    State before = state_of(clock), took{};
    bool known = false;
    for (std::int32_t n = 0; n < s.count; ++n) {
      while (s.reads && gather_step < steps.size() && issued <= user + ahead) gather_next();
      const Seconds ready =
          std::max(s.there + s.each_later * n, s.reads ? gathered[user % kMostAhead] : kLongAgo);
      const bool begins_gradients = place.first_gradients && is_there(s.begin);
      if (i == 0 && n == 0 && (!place.begins || begins_gradients || place.host.value > 0)) {
        UnitStep first = s;
        HostWork work = place.begins ? first_of(first).work : HostWork{};
        work.before += place.host;
        first_of(first).work = {};
        (begins_gradients && !is_there(s.recompute) ? first.begin : first_of(first)).work = work;
        run_step(clock, first, begins_gradients, ready);
      } else {
        run_step(clock, s, begins_gradients, ready);
      }
      if (s.reads) ++user;
      if (is_there(s.reduce)) clock.run(kCollectiveStream, s.reduce, clock.free(kComputeStream));
      const State now = state_of(clock), takes = now - before;
      // Gathers of what comes after these units are none that these repeat.
      const std::int32_t left = s.count - n - 1 - (s.reads ? static_cast<std::int32_t>(ahead) + 1 : 0);
      if (known && left > 0 && (!s.reads || gather_step == i) && s.each_later <= takes.compute &&
          goes_on(takes, took, now, exchanges)) {
        clock.skip(takes.compute * left, exchanges ? takes.collective * left : Seconds{}, takes.host * left);
        n += left;
        if (s.reads) {
          std::array<Seconds, kMostAhead> moved{};
          for (std::size_t u = user; u < issued; ++u)
            moved[(u + static_cast<std::size_t>(left)) % kMostAhead] =
                gathered[u % kMostAhead] + (is_there(s.gather) ? takes.collective * left : Seconds{});
          gathered = moved;
          gather_in_step += left;
          user += static_cast<std::size_t>(left);
          issued += static_cast<std::size_t>(left);
        }
        known = false;
        before = state_of(clock);
        continue;
      }
      took = takes;
      before = now;
      known = true;
    }
  }
}

}  // namespace sim
