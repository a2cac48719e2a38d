// Where a step's time goes: parts that exclude each other.
#include "sim/report/step_parts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "sim/cost/predict.h"
#include "sim/cost/priced_plan.h"
#include "sim/cost/step_detail.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using sim::StepPart;

namespace {

sim::Scenario of_8b(int data, int tensor, int pipeline, std::int64_t batch) {
  sim::Scenario s;
  s.model = sim::load_model_preset("llama-3.1-8b");
  s.hardware = sim::load_hardware_preset("h100-sxm");
  s.implementation = sim::load_implementation_preset("ridgepoint");
  s.workload.dtype = sim::DType::bf16;
  s.workload.seq_len = 4096;
  s.workload.global_batch_size = batch;
  s.strategy.data_parallel = data;
  s.strategy.tensor_parallel = tensor;
  s.strategy.pipeline_parallel = pipeline;
  REQUIRE(sim::validate(s).empty());
  return s;
}

}  // namespace

TEST_CASE("the parts of a step are not negative and add up to it, of every stage and in the mean") {
  for (const sim::Scenario& s : {of_8b(1, 2, 4, 8), of_8b(2, 1, 4, 8), of_8b(2, 2, 2, 32), of_8b(8, 1, 1, 8),
                                 sim::load_scenario_preset("train-llama-3.1-405b-16384-h100"),
                                 sim::load_scenario_preset("chat-llama-3.1-8b-h100")}) {
    const sim::Report r = sim::predict(s);
    std::set<std::optional<std::int32_t>> ranks = {std::nullopt};
    for (const sim::Row& row : r.rows) ranks.insert(row.rank);
    for (const auto& rank : ranks) {
      const sim::StepParts parts = sim::step_parts(r, rank);
      sim::Seconds sum;
      for (const sim::Seconds part : parts.seconds) {
        CHECK(part.value >= 0);
        sum += part;
      }
      CHECK(sum.value == Approx(parts.whole.value));
      CHECK(parts.whole.value == Approx(sim::step_time(r).value));
      if (s.strategy.pipeline_parallel == 1) CHECK(parts[StepPart::bubble].value == 0);
    }
  }
}

TEST_CASE(
    "exposed communication and the bubble are those of the step's timeline, within a fiftieth of the step") {
  for (const sim::Scenario& s : {of_8b(1, 2, 4, 8), of_8b(2, 1, 4, 8), of_8b(2, 2, 2, 32), of_8b(8, 1, 1, 8),
                                 sim::load_scenario_preset("train-llama-3.1-405b-16384-h100")}) {
    const sim::Plan plan = sim::make_plan(s);
    const sim::Report r = sim::predict(plan, s.hardware);
    const sim::StepDetail detail = sim::step_detail(plan, s.hardware);
    // Without waiting for the slowest, which timelines know nothing of.
    const double step = r.step_time.value - r.waiting_for_slowest.value;
    std::set<std::int32_t> ranks;
    for (const sim::Row& row : r.rows) ranks.insert(row.rank);
    std::int32_t stage = 0;
    for (const std::int32_t rank : ranks) {
      double exposed = 0, in_passes = 0, optimizer = 0;
      for (const sim::MessageTraffic& t : detail.traffic)
        if (t.stage == stage && t.kind != sim::OpKind::send) exposed += t.exposed.value;
      for (const sim::TimelineSlot& slot : detail.slots)
        if (slot.stage == stage)
          (slot.phase == sim::Phase::optimizer ? optimizer : in_passes) += (slot.end - slot.start).value;
      const sim::StepParts parts = sim::step_parts(r, rank);
      CAPTURE(s.model.name, stage, step, exposed, in_passes, optimizer);
      CHECK(std::abs(parts[StepPart::network].value - exposed) <= step / 50);
      if (s.strategy.pipeline_parallel > 1) {
        // What no pass fills is bubble, or communication between passes.
        const double idle = step - in_passes - optimizer;
        CHECK(parts[StepPart::bubble].value <= idle + step / 50);
        CHECK(parts[StepPart::bubble].value >= idle - exposed - step / 50);
      }
      ++stage;
    }
  }
}

TEST_CASE("what rows say is exposed is when the clock has an exchange running and nothing computed") {
  sim::Scenario s = of_8b(8, 1, 1, 16);
  s.strategy.zero_stage = GENERATE(0, 1, 2, 3);
  const sim::Plan plan = sim::make_plan(s);
  const sim::PricedPlan priced = sim::price_plan(plan, s.hardware, nullptr);
  // A sweep over all beginnings and ends.
  std::map<double, std::array<int, 2>> changes;  // of what runs: computing, exchanges
  const sim::ExecutedProgram& run = priced.expected.programs.front();
  for (std::size_t i = 0; i < plan.programs.front().actions.size(); ++i) {
    const sim::Action& action = plan.programs.front().actions[i];
    if (action.stream != sim::kComputeStream && action.stream != sim::kCollectiveStream) continue;
    // The sum of the gradients' norm over ranks is an exchange between passes.
    const auto& operations = plan.blocks[static_cast<std::size_t>(action.block)].operations;
    const bool exchanges = std::all_of(operations.begin(), operations.end(), [](const sim::Operation& op) {
      return sim::info(op.kind).family == sim::Family::communication;
    });
    const std::size_t of = exchanges ? 1 : 0;
    ++changes[run.start[i].value][of];
    --changes[run.end[i].value][of];
  }
  double alone = 0, since = 0;
  std::array<int, 2> running{};
  for (const auto& [time, change] : changes) {
    if (running[0] == 0 && running[1] > 0) alone += time - since;
    for (const std::size_t of : {0U, 1U}) running[of] += change[of];
    since = time;
  }
  const sim::Report r = sim::predict(plan, s.hardware);
  double exposed = 0;
  for (const sim::Row& row : r.rows) {
    if (!row.exposed) continue;
    CHECK(row.exposed->value >= 0);
    CHECK(row.exposed->value <= row.duration.value * (1 + 1e-9));
    exposed += row.exposed->value;
  }
  CAPTURE(s.strategy.zero_stage, r.step_time.value);
  CHECK(alone > 0);
  CHECK(exposed == Approx(alone).epsilon(1e-6));
  CHECK(sim::step_parts(r)[StepPart::network].value == Approx(alone).epsilon(1e-6));
}

TEST_CASE("of an exchange whose row does not say what is exposed, it is as much as the step has room for") {
  sim::Report r = sim::predict(of_8b(8, 1, 1, 8));
  const sim::StepParts known = sim::step_parts(r);
  for (sim::Row& row : r.rows) row.exposed.reset();
  const sim::StepParts estimated = sim::step_parts(r);
  CHECK(estimated.whole.value == Approx(known.whole.value));
  CHECK(estimated[StepPart::compute].value == Approx(known[StepPart::compute].value));
  CHECK(estimated[StepPart::network].value >= known[StepPart::network].value * (1 - 1e-9));
}

TEST_CASE("what binds a step with few micro-batches is the pipeline, and is said by its share of the step") {
  const sim::Report r = sim::predict(of_8b(1, 1, 8, 2));
  const auto shares = sim::part_shares(r);
  REQUIRE(shares.front().part == StepPart::bubble);
  const std::string share = std::to_string(std::lround(100 * shares.front().share)) + " % of the step";
  CHECK(sim::bottleneck_sentence(r) == "Bound by the pipeline: " + share +
                                           " its stages wait for each other; 2 micro-batches feed 8 stages.");
  CHECK(shares.front().share > 0.5);
}

TEST_CASE("rows that fill more than a measured step are counted in proportion: no share is above the whole") {
  sim::Report r = sim::predict(of_8b(1, 1, 1, 1));
  r.source.kind = sim::ReportKind::measured;
  r.step_time = r.step_time * 0.5;
  const sim::StepParts parts = sim::step_parts(r);
  CHECK(parts.whole.value == Approx(r.step_time.value));
  for (const sim::PartShare& share : sim::part_shares(r)) CHECK(share.share <= 1);
}
