#include "sim/planner/pass_time.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/vectorize.h"

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

bool alike(Seconds a, Seconds b) {
  constexpr double kRounding = 1e-12;
  return std::abs(a.value - b.value) <= kRounding * std::max(std::abs(a.value), std::abs(b.value));
}

// Where a device's streams stand, or by how much they have moved.
struct Streams {
  Seconds compute, collective;
  // Whether units that took these, as the one before took `others`, will go on so: what lags behind does not
  // catch up with what it does not wait for. `at`: where streams stand now.
  bool go_on(const Streams& others, const Streams& at, bool exchanges) const {
    if (!alike(compute, others.compute)) return false;
    // Compute beside what is still exchanged is slower than it will be.
    if (!exchanges) return at.collective <= at.compute;
    if (!alike(collective, others.collective)) return false;
    return alike(collective, compute) || (collective > compute && at.collective > at.compute);
  }
};
Streams operator-(const Streams& a, const Streams& b) {
  return {a.compute - b.compute, a.collective - b.collective};
}

constexpr Seconds kLongAgo{-1e30};
// Gathers that have not been waited for, beyond which they do not matter.
constexpr std::size_t kMostAhead = 16;

// Runs the units of a pass on a machine that says where it stands (State), gathers, works and reduces, and
// can be moved on by as much as units take that go on as the last one did.
template <class Machine, class Step>
SIM_INLINE void run_units(Machine& machine, std::span<const Step> steps, std::int32_t prefetch) {
  using State = typename Machine::State;
  const auto ahead = std::min<std::size_t>(static_cast<std::size_t>(std::max(0, prefetch)), kMostAhead - 1);
  std::array<Seconds, kMostAhead> gathered{};  // ends, by unit modulo
  std::size_t gather_step = 0, issued = 0, user = 0;
  std::int32_t gather_in_step = 0;
  const auto skip_others = [&] {
    while (gather_step < steps.size() && !steps[gather_step].reads) ++gather_step;
  };
  skip_others();
  const auto gather_next = [&] {
    const Step& s = steps[gather_step];
    gathered[issued % kMostAhead] = is_there(s.gather) ? machine.gather(s) : kLongAgo;
    ++issued;
    if (++gather_in_step == s.count) {
      gather_in_step = 0;
      ++gather_step;
      skip_others();
    }
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    const bool gathers = is_there(s.gather), reduces = is_there(s.reduce), exchanges = gathers || reduces;
    State before = machine.state(), took{};
    bool known = false;
    for (std::int32_t n = 0; n < s.count; ++n) {
      while (s.reads && gather_step < steps.size() && issued <= user + ahead) gather_next();
      machine.work(s, n, i == 0 && n == 0, s.reads ? gathered[user % kMostAhead] : kLongAgo);
      if (s.reads) ++user;
      if (reduces) machine.reduce(s);
      const State now = machine.state(), takes = now - before;
      // Gathers of what comes after these units are none that these repeat.
      const std::int32_t left = s.count - n - 1 - (s.reads ? static_cast<std::int32_t>(ahead) + 1 : 0);
      if (known && left > 0 && (!s.reads || gather_step == i) && machine.goes_on(s, takes, took, exchanges)) {
        machine.skip(takes, left, exchanges);
        n += left;
        if (s.reads) {
          std::array<Seconds, kMostAhead> moved{};
          for (std::size_t u = user; u < issued; ++u)
            moved[(u + static_cast<std::size_t>(left)) % kMostAhead] =
                gathered[u % kMostAhead] + (gathers ? Streams(takes).collective * left : Seconds{});
          gathered = moved;
          gather_in_step += left;
          user += static_cast<std::size_t>(left);
          issued += static_cast<std::size_t>(left);
        }
        known = false;
        before = machine.state();
        continue;
      }
      took = takes;
      before = now;
      known = true;
    }
  }
}

// A device and the host that launches what it does.
class WithHost {
 public:
  struct State : Streams {
    Seconds host;
    State operator-(const State& o) const { return {Streams(*this) - Streams(o), host - o.host}; }
  };
  WithHost(DeviceClock& clock, PassPlace place) : clock_(clock), place_(place) {}

  State state() const {
    return {{clock_.free(kComputeStream), clock_.free(kCollectiveStream)}, clock_.host()};
  }
  Seconds gather(const UnitStep& s) {
    return clock_.run(kCollectiveStream, s.gather, clock_.free(kComputeStream)).end;
  }
  void reduce(const UnitStep& s) { clock_.run(kCollectiveStream, s.reduce, clock_.free(kComputeStream)); }
  void work(const UnitStep& s, std::int32_t n, bool first, Seconds gathered) {
    const Seconds ready = std::max(s.there + s.each_later * n, gathered);
    const bool begins_gradients = place_.first_gradients && is_there(s.begin);
    if (!first || (place_.begins && !begins_gradients && place_.host.value == 0))
      return run(s, begins_gradients, ready);
    UnitStep begun = s;
    HostWork work = place_.begins ? first_of(begun).work : HostWork{};
    work.before += place_.host;
    first_of(begun).work = {};
    (begins_gradients && !is_there(s.recompute) ? begun.begin : first_of(begun)).work = work;
    run(begun, begins_gradients, ready);
  }
  bool goes_on(const UnitStep& s, const State& takes, const State& took, bool exchanges) const {
    if (s.each_later > takes.compute || !alike(takes.host, took.host)) return false;
    if (takes.host > takes.compute && !alike(takes.host, takes.compute)) return false;
    return takes.go_on(took, state(), exchanges);
  }
  void skip(const State& takes, std::int32_t units, bool exchanges) {
    clock_.skip(takes.compute * units, exchanges ? takes.collective * units : Seconds{}, takes.host * units);
  }

 private:
  void run(const UnitStep& s, bool begins_gradients, Seconds ready) {
    if (is_there(s.recompute)) {
      const ActionTime rest = in_turn(s.before, s.compute);
      if (!begins_gradients) {
        clock_.run(kComputeStream, in_turn(s.recompute, rest), ready);
        return;
      }
      clock_.run(kComputeStream, s.recompute, ready);
      clock_.run(kComputeStream, s.begin);
      clock_.run(kComputeStream, rest);
      return;
    }
    if (begins_gradients) clock_.run(kComputeStream, s.begin);
    if (is_there(s.before)) clock_.run(kComputeStream, s.before);
    clock_.run(kComputeStream, s.compute, ready);
  }

  DeviceClock& clock_;
  PassPlace place_;
};

// A device whose host is ahead of it. Whatever is exchanged begins as soon as the compute that was launched
// before has ended and the stream is free: what goes on beside further compute goes on without a gap.
class WithoutHost {
 public:
  using State = Streams;
  WithoutHost(Interference interference, Streams begin)
      : slowdown_(interference.compute), beside_(1 - 1 / slowdown_), at_(begin) {}

  State state() const { return at_; }
  Seconds gather(const DeviceStep& s) { return exchange(s.gather.duration); }
  void reduce(const DeviceStep& s) { exchange(s.reduce.duration); }
  void work(const DeviceStep& s, std::int32_t, bool, Seconds gathered) {
    if (s.before.value > 0) compute(at_.compute, s.before);
    compute(std::max(at_.compute, gathered), s.compute);
  }
  bool goes_on(const DeviceStep&, const State& takes, const State& took, bool exchanges) const {
    return takes.go_on(took, at_, exchanges);
  }
  void skip(const State& takes, std::int32_t units, bool exchanges) {
    at_.compute += takes.compute * units;
    if (exchanges) at_.collective += takes.collective * units;
  }

 private:
  Seconds exchange(Seconds duration) {
    return at_.collective = std::max(at_.collective, at_.compute) + duration;
  }
  void compute(Seconds start, Seconds work) {
    at_.compute = start + work;
    // Beside an exchange, work takes longer by this share of the time that both go on.
    if (at_.collective > start) at_.compute += std::min(at_.collective - start, work * slowdown_) * beside_;
  }

  double slowdown_, beside_;
  Streams at_;
};

}  // namespace

void run_pass(DeviceClock& clock, const std::vector<UnitStep>& steps, std::int32_t prefetch,
              PassPlace place) {
  WithHost machine(clock, place);
  run_units<WithHost, UnitStep>(machine, steps, prefetch);
}

DevicePass run_pass(std::span<const DeviceStep> steps, std::int32_t prefetch, Interference interference) {
  constexpr Seconds kBefore{-1e6};
  WithoutHost machine(interference, {{}, kBefore});
  run_units(machine, steps, prefetch);
  return {machine.state().compute, machine.state().collective};
}

}  // namespace sim
