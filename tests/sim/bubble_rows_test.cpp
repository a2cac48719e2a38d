// Waiting for another stage is the pipeline's bubble: only what is on wires is booked as network.
#include <algorithm>
#include <map>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/cost/static_batch.h"
#include "sim/plan/legality.h"
#include "sim/report/step_parts.h"
#include "sim/scenario/preset.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

Scenario in_stages(int stages, int micro_batches) {
  Scenario s = test::training(test::llama(1024, 4096, 8, 16, 16, 1000), 1024, 1, micro_batches);
  s.strategy.pipeline_parallel = stages;
  return s;
}

double share_of(const Report& report, Bound bound) {
  double all = 0, so_bound = 0;
  for (const Row& row : report.rows) {
    all += row.duration.value;
    if (row.bound == bound) so_bound += row.duration.value;
  }
  return so_bound / all;
}

TEST_CASE("rows that wait for a stage are bound by the bubble, and no others are") {
  int waiting = 0;
  const auto check = [&](const Report& report) {
    for (const Row& row : report.rows) {
      CAPTURE(report.source.scenario.implementation.name, row.id);
      CHECK((row.bound == Bound::bubble) == (row.kind == OpKind::receive));
      waiting += row.bound == Bound::bubble && row.duration.value > 0;
    }
  };
  for (unsigned seed = 0; seed < 30; ++seed) check(predict(test::random_parallel_scenario(seed)));
  CHECK(waiting > 20);
}

TEST_CASE("an engine's stages wait for each other in their bubble, and not on the network") {
  Scenario s = test::generation(load_model_preset("llama-2-70b"), 512, 16);
  s.hardware = load_hardware_preset("a100-sxm-80gb");
  s.implementation = load_implementation_preset("fastertransformer");
  s.strategy.pipeline_parallel = 4;
  const auto tables = load_calibration_preset("a100-sxm-80gb");
  Report report;
  report.source.scenario = s;
  set_engine_results(&*tables, report);
  double waits = 0;
  for (const Row& row : report.rows)
    if (row.id == "engine.wait") {
      CHECK(row.bound == Bound::bubble);
      waits += row.duration.value;
    }
  CHECK(waits > 0);
}

TEST_CASE("on links without end sends keep their latency alone, and the bubble is (p - 1) / m") {
  constexpr Seconds kSendLatency = us(10);
  for (const int micro_batches : {4, 16, 64}) {
    Scenario s = in_stages(4, micro_batches);
    s.hardware.node_link = s.hardware.network_link = {1e30};
    s.hardware.node_latency = s.hardware.network_latency = s.hardware.launch = {};
    const Report report = predict(s);
    for (const Row& row : report.rows)
      if (row.kind == OpKind::send)
        CHECK(row.duration <= kSendLatency * (1.001 * static_cast<double>(row.count)));
    // (p - 1) / (m + p - 1) of all stages' time; what comes after a stage's last pass is no waiting for
    // another, and who receives waits for the latency, too.
    const double closed = 3.0 / (micro_batches + 3), network = share_of(report, Bound::network);
    CAPTURE(micro_batches, closed, network);
    CHECK(share_of(report, Bound::bubble) > 0.4 * closed);
    CHECK(share_of(report, Bound::bubble) < 1.2 * closed + network);
  }
}

TEST_CASE(
    "operations of a part take the share of the step that the part has, and waiting at most its bubble's") {
  int told = 0, waiting = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    const Report report = predict(test::random_parallel_scenario(seed));
    const StepParts parts = step_parts(report);
    EnumArray<Bound, Seconds> rows{};
    std::map<std::int32_t, Seconds> of_rank;
    for (const Row& row : report.rows) {
      of_rank[row.rank] += row.exposed.value_or(row.duration);
      if (!row.exposed) rows[row.bound] += row.duration;
    }
    // Rows that overlap come to more than the step, and count in proportion.
    const auto overlaps = [&](const auto& rank) {
      return rank.second > report.step_time - report.waiting_for_slowest;
    };
    CHECK(parts.whole.value == Approx(report.step_time.value));
    if (std::ranges::any_of(of_rank, overlaps)) continue;
    ++told;
    // As the table of operations has it: of the mean rank, over the step.
    const auto share = [&](Bound bound) {
      return rows[bound] / parts.whole / static_cast<double>(of_rank.size());
    };
    CAPTURE(seed);
    CHECK(share(Bound::compute) == Approx(parts.share(StepPart::compute)));
    CHECK(share(Bound::memory) == Approx(parts.share(StepPart::memory)));
    CHECK(share(Bound::launch) == Approx(parts.share(StepPart::launch)));
    CHECK(share(Bound::bubble) <= parts.share(StepPart::bubble) + 1e-9);
    waiting += share(Bound::bubble) > 0;
  }
  CHECK(told > 20);
  CHECK(waiting > 10);
}

TEST_CASE("a step that waits more than it does anything else says so, and files say it by a word") {
  CHECK_THAT(bottleneck_sentence(predict(in_stages(8, 1))), contains("stages wait for each other"));
  CHECK(from_name<Bound>("bubble") == Bound::bubble);
  CHECK(name(Bound::bubble) == "bubble");
}

}  // namespace
