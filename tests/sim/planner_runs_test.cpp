// Runs of passes through a pipeline, and of units through a pass, each beside a slower way to the same.
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/planner/lanes.h"
#include "sim/planner/pass_time.h"
#include "sim/planner/slot_order.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

class RandomTimes {
 public:
  explicit RandomTimes(std::uint64_t seed) : random_(seed) {}
  Seconds upto(double most) { return {std::uniform_real_distribution<double>(0, most)(random_)}; }
  int between(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  bool one_in(int n) { return between(1, n) == 1; }

  PassTime pass(bool hosts) {
    PassTime t;
    t.compute = t.collectives = t.host = {kNever, kNever, kNever, kNever};
    t.compute[kFromCompute] = upto(1) + Seconds{0.1};
    t.collectives[kFromCollectives] = upto(1.5);
    if (one_in(2)) t.collectives[kFromCompute] = t.compute[kFromCompute] + upto(0.3);
    if (one_in(3)) t.compute[kFromCollectives] = t.compute[kFromCompute];
    if (hosts) {
      t.host[kFromHost] = upto(0.5);
      t.compute[kFromHost] = t.compute[kFromCompute] + upto(0.1);
      if (one_in(3)) t.host[kFromCompute] = t.host[kFromSends] = upto(0.1);
    }
    t.slower = 0.1;
    t.most_slower = upto(0.1);
    return t;
  }

 private:
  std::mt19937_64 random_;
};

struct RandomPasses {
  explicit RandomPasses(RandomTimes& random, bool hosts) {
    for (PassTime& t : times) t = random.pass(hosts);
    for (std::size_t i = 0; i < kPassKinds.size(); ++i) by_kind[i] = &times[i];
  }
  std::array<PassTime, kPassKinds.size()> times;
  ChunkPasses by_kind{};
};

ActionTime action(RandomTimes& random, double most, double launches) {
  ActionTime a{.duration = random.upto(most), .host = {}, .work = {}};
  a.host.launches = random.upto(launches);
  a.host.ahead = std::max(a.host.launches, a.duration);
  return a;
}

// As stage programs have it, unit by unit by the clock that plans are run with.
void run_each(DeviceClock& clock, const std::vector<TimedStep>& steps, int prefetch, HostWork work) {
  std::vector<const TimedStep*> readers;
  for (const TimedStep& s : steps)
    for (int n = 0; s.reads && n < s.count; ++n) readers.push_back(&s);
  std::vector<Seconds> gathered;
  std::size_t used = 0;
  bool begun = false;
  const auto compute = [&](const ActionTime& a, Seconds ready) {
    ActionTime with = a;
    if (!std::exchange(begun, true)) with.work = work;
    clock.run(kComputeStream, with, ready);
  };
  for (const TimedStep& s : steps) {
    int waiting = s.waiting;
    for (int n = 0; n < s.count; ++n) {
      Seconds ready = kNever;
      if (s.reads) {
        while (gathered.size() < readers.size() &&
               gathered.size() <= used + static_cast<std::size_t>(prefetch)) {
          const TimedStep& next = *readers[gathered.size()];
          gathered.push_back(next.gathers
                                 ? clock.run(kCollectiveStream, next.gather, clock.free(kComputeStream)).end
                                 : kNever);
        }
        ready = gathered[used++];
      }
      if (is_there(s.before)) compute(s.before, kNever);
      compute(s.work, ready);
      if (s.bucket > 0 && ++waiting == s.bucket) {
        clock.run(kCollectiveStream, s.message, clock.free(kComputeStream));
        waiting = 0;
      }
    }
  }
}

}  // namespace

TEST_CASE("runs of a pipeline beside each other end to the bit as each does alone") {
  RandomTimes random(5);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipev"})
    for (const bool hosts : {false, true}) {
      constexpr std::int32_t kStages = 4, kMicroBatches = 48;  // several groups
      const int chunks = schedule_problems(schedule, kStages, 2, kMicroBatches).empty() ? 2 : 1;
      const SlotEvents slots = slots_in_groups(schedule, kStages, chunks, kMicroBatches);
      const SlotOrder order(slots);
      const auto at = static_cast<std::size_t>(slots.stages * slots.chunks);
      std::vector<std::size_t> piece_of;
      for (std::size_t i = 0; i < at; ++i) piece_of.push_back(i % 3);
      TransferTimes transfers;
      for (ActionTime* t : {&transfers.send_forward, &transfers.send_backward})
        *t = action(random, 0.2, hosts ? 0.02 : 0);
      std::vector<RandomPasses> passes;
      for (std::size_t i = 0; i < 3 * (2 * kLanes + 1); ++i) passes.emplace_back(random, hosts);
      for (RandomPasses& p : passes)
        for (std::size_t i = 0; i < kPassKinds.size(); ++i) p.by_kind[i] = &p.times[i];
      std::vector<std::vector<ChunkPasses>> of_runs;
      std::vector<PipelinePasses> runs(2 * kLanes + 1);  // the last of them has nobody beside it
      for (std::size_t i = 0; i < runs.size(); ++i)
        of_runs.push_back({passes[3 * i].by_kind, passes[3 * i + 1].by_kind, passes[3 * i + 2].by_kind});
      for (std::size_t i = 0; i < runs.size(); ++i) {
        runs[i].passes = of_runs[i];
        for (int stage = 0; stage < kStages; ++stage)
          runs[i].begin.push_back({random.upto(0.5), random.upto(0.5), {}, random.upto(hosts ? 0.5 : 0)});
        if (i % 2 == 0)
          for (std::size_t c = 0; c < at; ++c) runs[i].first_forward.push_back(random.upto(3));
      }
      std::vector<StageEnd> together, alone;
      order.run(runs, piece_of, transfers, hosts, together);
      REQUIRE(together.size() == runs.size() * kStages);
      for (std::size_t i = 0; i < runs.size(); ++i) {
        order.run({&runs[i], 1}, piece_of, transfers, hosts, alone);
        for (std::size_t e = 0; e < alone.size(); ++e) {
          const StageEnd& beside = together[i * alone.size() + e];
          CAPTURE(schedule, hosts, i, e);
          CHECK(beside.compute.value == alone[e].compute.value);
          CHECK(beside.collectives.value == alone[e].collectives.value);
          CHECK(beside.sends.value == alone[e].sends.value);
          if (hosts) CHECK(beside.host.value == alone[e].host.value);
        }
      }
    }
}

TEST_CASE("a schedule with its groups of micro-batches repeated ends as slot by slot, whatever pieces take") {
  RandomTimes random(7);
  int repeated = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string schedule(kScheduleNames[static_cast<std::size_t>(i) % kScheduleNames.size()]);
    const std::int32_t stages = random.between(2, 6);
    const std::int32_t micro_batches = group_of(schedule, stages) * random.between(3, 24) +
                                       (random.one_in(3) ? random.between(1, stages) : 0);
    int chunks = random.between(1, 4);
    if (!schedule_problems(schedule, stages, chunks, micro_batches).empty()) chunks = 2;
    if (!schedule_problems(schedule, stages, chunks, micro_batches).empty()) chunks = 1;
    if (!schedule_problems(schedule, stages, chunks, micro_batches).empty()) continue;
    const bool hosts = random.one_in(2);
    const Schedule slots = make_schedule(schedule, stages, chunks, micro_batches);
    const SlotEvents groups = slots_in_groups(schedule, stages, chunks, micro_batches);
    repeated += groups.repeats > 1;
    CAPTURE(i, schedule, stages, chunks, micro_batches, hosts, groups.repeats);
    const auto at = static_cast<std::size_t>(slots.stages * slots.chunks);
    const int pieces = random.between(1, 5);
    std::vector<RandomPasses> passes;
    for (int p = 0; p < pieces; ++p) passes.emplace_back(random, hosts);
    std::vector<ChunkPasses> of_pieces;
    for (RandomPasses& p : passes) {
      for (std::size_t k = 0; k < kPassKinds.size(); ++k) p.by_kind[k] = &p.times[k];
      of_pieces.push_back(p.by_kind);
    }
    std::vector<std::size_t> piece_of;
    for (std::size_t c = 0; c < at; ++c)
      piece_of.push_back(static_cast<std::size_t>(random.between(0, pieces - 1)));
    PipelinePasses run{.passes = of_pieces};
    for (int stage = 0; stage < stages; ++stage)
      run.begin.push_back({random.upto(5), random.upto(50), {}, random.upto(hosts ? 5 : 0)});
    TransferTimes transfers;
    transfers.in_order = random.one_in(4);
    for (ActionTime* t : {&transfers.send_forward, &transfers.send_backward})
      *t = action(random, random.one_in(2) ? 0.2 : 3, hosts ? 0.02 : 0);
    std::vector<StageEnd> in_groups, slot_by_slot;
    SlotOrder(groups).run({&run, 1}, piece_of, transfers, hosts, in_groups);
    SlotOrder(every_slot(slots)).run({&run, 1}, piece_of, transfers, hosts, slot_by_slot);
    REQUIRE(in_groups.size() == slot_by_slot.size());
    for (std::size_t s = 0; s < in_groups.size(); ++s)
      for (const auto t : {&StageEnd::compute, &StageEnd::collectives, &StageEnd::sends, &StageEnd::host})
        CHECK((in_groups[s].*t).value == Approx((slot_by_slot[s].*t).value).epsilon(1e-7));
  }
  CHECK(repeated > 100);
}

TEST_CASE(
    "a pass as a whole ends when its units run one by one do, wherever streams and host stand before it") {
  RandomTimes random(6);
  for (int i = 0; i < 3000; ++i) {
    const bool hosts = random.one_in(2);
    const double launches = hosts ? (random.one_in(2) ? 0.02 : 0.5) : 0;
    const auto any = [&](double most) { return action(random, most, launches); };
    std::vector<TimedStep> steps;
    for (int n = random.between(1, 6); n > 0; --n) {
      TimedStep s{.count = random.between(1, 40), .reads = !random.one_in(4)};
      s.work = any(1);
      if (random.one_in(2)) s.before = any(0.1);
      s.gathers = s.reads && random.one_in(2);
      if (s.gathers) s.gather = any(1.2);
      if (random.one_in(2)) {
        s.message = any(random.one_in(2) ? 0.8 : 4);
        s.bucket = random.between(1, 6);
        s.waiting = random.between(0, s.bucket - 1);
      }
      steps.push_back(s);
    }
    const int prefetch = random.between(0, 30);
    PassBegin begin{.hosts = hosts};
    if (hosts) begin.work = {random.upto(0.3), random.one_in(3)};
    const PassTime pass = time_pass(steps, begin, prefetch);
    for (int state = 0; state < 4; ++state) {
      DeviceClock clock(Interference{}, false);
      const Seconds compute = random.upto(20), collectives = random.upto(20), sends = random.upto(20),
                    host = hosts ? random.upto(20) : kNever;
      clock.free(kComputeStream) = compute;
      clock.free(kCollectiveStream) = collectives;
      clock.free(kSendStream) = sends;
      clock.host() = host;
      run_each(clock, steps, prefetch, begin.work);
      const auto after = [&](const FromEach& from) {
        return std::max({compute + from[kFromCompute], collectives + from[kFromCollectives],
                         host + from[kFromHost], sends + from[kFromSends]})
            .value;
      };
      CAPTURE(i, state, hosts, prefetch, steps.size());
      CHECK(after(pass.compute) == Approx(clock.free(kComputeStream).value));
      CHECK(after(pass.collectives) == Approx(clock.free(kCollectiveStream).value));
      if (hosts) CHECK(after(pass.host) == Approx(clock.host().value));
    }
  }
}

TEST_CASE(
    "a pass that begins when all is free takes compute beside exchanges as long as the clock of plans says") {
  RandomTimes random(7);
  for (int i = 0; i < 2000; ++i) {
    const auto any = [&](double most) { return action(random, most, 0); };
    std::vector<TimedStep> steps;
    for (int n = random.between(1, 6); n > 0; --n) {
      TimedStep s{.count = random.between(1, 40), .reads = !random.one_in(4)};
      s.work = any(1);
      s.gathers = s.reads && random.one_in(2);
      if (s.gathers) s.gather = any(1.2);
      if (random.one_in(2)) {
        s.message = any(2);
        s.bucket = random.between(1, 6);
      }
      steps.push_back(s);
    }
    const int prefetch = random.between(0, 30);
    const PassBegin begin{.interference = {1.3}};
    const PassTime pass = time_pass(steps, begin, prefetch);
    DeviceClock clock(begin.interference, false);
    clock.free(kCollectiveStream) = clock.host() = kNever;
    run_each(clock, steps, prefetch, {});
    CAPTURE(i, prefetch, steps.size());
    CHECK(pass.compute[kFromCompute].value == Approx(clock.free(kComputeStream).value));
    if (clock.free(kCollectiveStream) > Seconds{})
      CHECK(pass.collectives[kFromCompute].value == Approx(clock.free(kCollectiveStream).value));
  }
}
