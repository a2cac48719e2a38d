// Runs of passes through a pipeline, and of units through a pass, each beside a slower way to the same.
#include <random>
#include <string>
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
    PassTime t{.duration = upto(1) + Seconds{0.1}};
    if (one_in(2)) {
      t.collectives = upto(1.5);
      t.collectives_after_compute = t.duration + upto(0.3);
      t.slower = 0.1;
      t.most_slower = upto(0.1);
    }
    if (one_in(3)) t.compute_after_collectives = t.duration;
    if (hosts) {
      t.host = {upto(0.5), t.duration + upto(0.1)};
      t.work.before = upto(0.05);
    }
    return t;
  }
  ChunkPasses passes(bool hosts) {
    ChunkPasses p;
    for (const auto which : kPasses) p.*which = pass(hosts);
    p.begin_gradients.duration = upto(0.1);
    return p;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace

TEST_CASE("passes that are run beside others end to the bit as they do alone") {
  RandomTimes random(5);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipev"})
    for (const int hosts_of_three : {0, 1, 3}) {  // runs whose hosts take part
      constexpr std::int32_t kStages = 4;
      const int chunks = schedule_problems(schedule, kStages, 2, 16).empty() ? 2 : 1;
      const Schedule slots = make_schedule(schedule, kStages, chunks, 16);
      const SlotOrder order(slots), shorter(make_schedule(schedule, kStages, chunks, 8));
      const auto at = static_cast<std::size_t>(slots.stages * slots.chunks);
      std::vector<std::size_t> piece_of;
      for (std::size_t i = 0; i < at; ++i) piece_of.push_back(i % 3);
      TransferTimes transfers;
      for (ActionTime* t : {&transfers.send_forward, &transfers.send_backward}) {
        t->duration = random.upto(0.2);
        if (hosts_of_three == 3) t->host = {random.upto(0.02), t->duration + random.upto(0.02)};
      }
      std::vector<std::vector<ChunkPasses>> passes;
      std::vector<PipelinePasses> runs;
      for (std::size_t i = 0; i < 2 * kLanes + 1; ++i) {  // the last of them has nobody beside it
        const bool hosts = static_cast<int>(i % 3) < hosts_of_three;
        passes.push_back({random.passes(hosts), random.passes(hosts), random.passes(hosts)});
        PipelinePasses& run = runs.emplace_back();
        for (int stage = 0; stage < kStages; ++stage)
          run.begin.stages.push_back({random.upto(0.5), random.upto(0.5), {}, random.upto(hosts ? 0.5 : 0)});
        if (i % 2 == 0)
          for (std::size_t c = 0; c < at; ++c) run.begin.first_forward.push_back(random.upto(3));
      }
      for (std::size_t i = 0; i < runs.size(); ++i) runs[i].passes = passes[i];
      const std::vector<const SlotOrder*> orders{&order, &shorter};
      std::vector<StageEnd> together, alone;
      SlotOrder::run(orders, runs, piece_of, transfers, together);
      REQUIRE(together.size() == runs.size() * orders.size() * kStages);
      for (std::size_t i = 0; i < runs.size(); ++i) {
        SlotOrder::run(orders, {&runs[i], 1}, piece_of, transfers, alone);
        for (std::size_t e = 0; e < alone.size(); ++e) {
          const StageEnd& beside = together[i * alone.size() + e];
          CAPTURE(schedule, hosts_of_three, i, e);
          CHECK(beside.compute.value == alone[e].compute.value);
          CHECK(beside.collectives.value == alone[e].collectives.value);
          CHECK(beside.sends.value == alone[e].sends.value);
          CHECK(beside.host.value == alone[e].host.value);
        }
      }
    }
}

TEST_CASE(
    "a pass takes a device whose host is ahead as long as its clock says, whatever is exchanged beside") {
  RandomTimes random(6);
  for (int i = 0; i < 2000; ++i) {
    std::vector<UnitStep> units;
    std::vector<DeviceStep> steps;
    for (int n = random.between(1, 6); n > 0; --n) {
      UnitStep u{.count = random.between(1, 20)};
      u.compute.duration = random.upto(1);
      if (random.one_in(2)) u.before.duration = random.upto(0.1);
      if (random.one_in(2)) u.gather.duration = random.upto(1.2);
      if (random.one_in(2)) u.reduce.duration = random.upto(0.8);
      u.reads = !random.one_in(4);
      units.push_back(u);
      steps.push_back({.before = u.before.duration,
                       .compute = u.compute.duration,
                       .gather = {u.gather.duration, {}},
                       .reduce = {u.reduce.duration, {}},
                       .before_gather = {},
                       .count = u.count,
                       .reads = u.reads});
    }
    const Interference interference{random.one_in(2) ? 1 : 1.3};
    const int prefetch = random.between(0, 8);
    constexpr Seconds kLongAgo{-1e6};
    DeviceClock clock(interference, false);
    clock.skip({}, kLongAgo, kLongAgo);
    run_pass(clock, units, prefetch, {.begins = false});
    const DevicePass pass = run_pass(steps, prefetch, interference);
    CAPTURE(i, prefetch, interference.compute, units.size());
    CHECK(pass.compute.value == Approx(clock.free(kComputeStream).value));
    CHECK(pass.collectives.value == Approx(clock.free(kCollectiveStream).value));
  }
}
