#include "sim/cost/predict.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "sim/cost/price.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

TEST_CASE("a report's rows add up to its step, and its ledger to the planned arena") {
  const unsigned seed = GENERATE(range(0u, 60u));
  const Plan plan = make_plan(test::random_scenario(seed));
  const Report r = predict(plan, plan.scenario.hardware);
  const MemoryPlan memory = plan_memory(plan);

  Seconds rows, low, high;
  std::int64_t count = 0;
  std::set<std::pair<std::string, Phase>> keys;
  for (const Row& row : r.rows) CHECK(keys.emplace(row.id, row.phase).second);
  for (const Row& row : r.rows) {
    rows += row.duration;
    low += row.low;
    high += row.high;
    count += row.count;
    if (!row.fused_into.empty()) {  // its time is in another's row
      CHECK(row.duration.value == 0);
      CHECK(keys.count({row.fused_into, row.phase}) == 1);
      continue;
    }
    CHECK(row.low < row.duration);
    CHECK(row.duration < row.high);
  }
  const Strategy& s = plan.scenario.strategy;
  if (s.offload_activations || s.offload_optimizer) {  // copies to and from the host run beside compute
    CHECK(r.step_time <= rows);
    CHECK(r.step_high <= high);
  } else {
    CHECK(r.step_time.value == Approx(rows.value).epsilon(1e-9));
    CHECK(r.step_low.value == Approx(low.value).epsilon(1e-9));
    CHECK(r.step_high.value == Approx(high.value).epsilon(1e-9));
  }
  CHECK(count == memory.duration);

  Bytes lines;
  for (const MemoryLine& line : r.memory)
    if (line.category != kHostMemory) lines += line.bytes;
  CHECK(lines == memory.arena);
  CHECK(total(memory.at_peak) == memory.live_peak);
  Bytes live;
  for (const LiveBuffer& b : live_at(plan, memory, memory.peak_time)) live += b.bytes;
  CHECK(live == memory.live_peak);

  Bytes highest;
  for (const MemoryTimePoint& p : r.memory_timeline) {
    highest = std::max(highest, total(p.bytes));
    CHECK(p.time <= r.step_time);
  }
  CHECK(highest == memory.live_peak);
  CHECK(r.memory_timeline.size() <= 2000);
}

TEST_CASE("no operation is faster than its roofline, and no prediction faster on a slower machine") {
  const unsigned seed = GENERATE(range(0u, 120u));
  const Plan plan = make_plan(test::random_scenario(seed));
  const Hardware h = test::h100();
  for (const Action& a : plan.programs.front().actions)
    for (const Operation& op : plan.blocks[a.block].operations) {
      const Work w = work_of(plan, op, a.variables);
      const Price p = price(w, op, a.variables, h, nullptr);
      // What the host computes streams through the host's memory, and is launched on no device.
      const Seconds least = w.host.value > 0 ? w.host / h.host_memory_bandwidth
                                             : roofline_time(h, h.launch, op.dtype, w.flops, w.memory());
      CAPTURE(seed, op.id, p.seconds.value, least.value, w.copied.value);
      REQUIRE(p.seconds >= least);
    }

  Hardware less_bandwidth = h, less_peak = h, more_launch = h;
  less_bandwidth.memory_bandwidth = h.memory_bandwidth * 0.5;
  for (auto& [dtype, peak] : less_peak.peak) peak = peak * 0.5;
  more_launch.launch = h.launch * 2;
  const Report fast = predict(plan, h);
  for (const Hardware& slower : {less_bandwidth, less_peak, more_launch}) {
    const Report slow = predict(plan, slower);
    REQUIRE(slow.rows.size() == fast.rows.size());
    for (std::size_t i = 0; i < fast.rows.size(); ++i)
      REQUIRE(slow.rows[i].duration >= fast.rows[i].duration);
    REQUIRE(slow.step_time >= fast.step_time);
  }
}

TEST_CASE("each further micro-batch adds the same to a step, and nothing to the optimizer's time") {
  const auto step = [](std::int64_t micro_batches) {
    return predict(test::training(test::llama_8b(), 256, 1, micro_batches));
  };
  const Report two = step(2), four = step(4),
               six = step(6);  // the first one writes gradients that others add to
  REQUIRE(two.rows.size() == four.rows.size());
  for (std::size_t i = 0; i < two.rows.size(); ++i) {
    const Row &a = two.rows[i], &b = four.rows[i], &c = six.rows[i];
    CHECK(b.id == a.id);
    CHECK(c.duration.value - b.duration.value == Approx(b.duration.value - a.duration.value).margin(1e-12));
    CHECK(b.flops.value == (a.phase == Phase::optimizer ? 1 : 2) * a.flops.value);
    if (a.phase == Phase::optimizer)
      CHECK(b.duration == a.duration);
    else
      CHECK(b.duration.value >= 2 * a.duration.value);
  }
}

TEST_CASE("a generation's tokens take the generation's time, and without a KV cache each takes longer") {
  const bool kv_cache = GENERATE(true, false);
  const Report r = predict(test::generation(test::llama_8b(), 2048, 40, kv_cache));
  REQUIRE(r.tokens.size() == 40);
  Seconds sum = r.tokens[0].duration;
  for (std::size_t t = 1; t < r.tokens.size(); ++t) {
    sum += r.tokens[t].duration;
    CHECK(r.tokens[t].index == static_cast<std::int64_t>(t));
    if (t > 1) CHECK(r.tokens[t].duration > r.tokens[t - 1].duration);
    if (!kv_cache) CHECK(r.tokens[t].duration > r.tokens[0].duration);
    if (kv_cache) CHECK(r.tokens[t].duration < r.tokens[0].duration);
  }
  CHECK(sum.value == Approx(r.step_time.value));
}

TEST_CASE(
    "decoding one sequence of Llama-3.1 8B on an H100 is bound by memory: 16 GB at 3.35 TB/s and not much "
    "more") {
  const Report r = predict(test::generation(test::llama_8b(), 128, 64));
  const double ideal = 2 * (8.03e9 - 128256.0 * 4096) / 3.35e12;  // the embedding table is not read
  CHECK(r.tokens.back().duration.value > ideal);
  CHECK(r.tokens.back().duration.value < 2 * ideal);
}

TEST_CASE("collectives take their latency and their bytes over the link that joins the group") {
  const Hardware h = test::h100();
  Operation op{.id = "c", .kind = OpKind::all_reduce, .dtype = DType::bf16};
  op.group = 0;
  Work work;
  work.network = {450'000'000};
  const Group in_node{Axis::tensor, 8, 1}, across{Axis::data, 8, 8};
  const Price a = price(work, op, {}, h, nullptr, &in_node), b = price(work, op, {}, h, nullptr, &across);
  CHECK(a.seconds.value > 1e-3);  // 0.45 GB by 450 GB/s
  CHECK(b.seconds.value > 9e-3);  // by 50 GB/s
  CHECK(a.bound == Bound::network);
  work.network = {};
  // NCCL 2.30.7, src/graph/tuning.cc: 8.4 us, and twice 7 hops of a ring, each of 3.4 us or the link's own.
  CHECK(price(work, op, {}, h, nullptr, &in_node).seconds.value ==
        Approx(8.4e-6 + 14 * std::max(3.4e-6, h.node_latency.value)));
}

}  // namespace
