// A step in detail against the report and the memory plan of the same step, and bubbles against closed forms.
#include "sim/cost/step_detail.h"

#include <algorithm>
#include <map>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/preset.h"
#include "tests/sim/schedule_run.h"
#include "tests/support/catch.h"

using sim::Seconds;

namespace {

sim::Scenario divided(int zero_stage) {
  sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-h100");
  s.strategy = {};
  s.strategy.data_parallel = 4;
  s.strategy.tensor_parallel = 2;
  s.strategy.pipeline_parallel = 4;
  s.strategy.zero_stage = zero_stage;
  s.workload.micro_batch_size = 1;
  s.workload.global_batch_size = 4 * 16;
  return s;
}

// The timeline of a schedule whose stages are equal and whose transfers take no time.
std::vector<sim::TimelineSlot> timeline_of(const sim::Schedule& schedule, const sim::PassTimes& times) {
  const auto all = std::vector<sim::PassTimes>(static_cast<std::size_t>(schedule.stages), times);
  const sim::ScheduleTimes run = sim::run(schedule, all, {});
  std::vector<sim::TimelineSlot> slots;
  for (std::int32_t stage = 0; stage < schedule.stages; ++stage) {
    const auto& row = schedule.slots[static_cast<std::size_t>(stage)];
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Seconds start = run.start[static_cast<std::size_t>(stage)][i];
      const bool forward = row[i].pass == sim::Pass::forward;
      const bool weights = row[i].pass == sim::Pass::backward_weight;
      Seconds duration = forward ? times.forward : weights ? times.backward_weight : times.backward_input;
      if (row[i].pass == sim::Pass::backward) duration += times.backward_weight;
      slots.push_back({.stage = stage,
                       .phase = forward ? sim::Phase::forward : sim::Phase::backward,
                       .inputs = row[i].pass == sim::Pass::backward_input,
                       .weights = weights,
                       .micro_batch = row[i].micro_batch,
                       .chunk = row[i].chunk,
                       .start = start,
                       .end = start + duration,
                       .recompute = {}});
    }
  }
  return slots;
}

}  // namespace

TEST_CASE("what the ranks of a stage send adds up to the bytes of its report's rows") {
  const sim::Scenario s = divided(GENERATE(0, 1, 2, 3));
  const sim::Plan plan = sim::make_plan(s);
  const auto calibration = sim::load_calibration_preset("h100-sxm");
  const sim::StepDetail detail = sim::step_detail(plan, s.hardware, &*calibration);
  const sim::Report report = sim::predict(plan, s.hardware, &*calibration);
  const std::int32_t ranks_of_stage = plan.ranks / s.strategy.pipeline_parallel;
  for (std::int32_t stage = 0; stage < s.strategy.pipeline_parallel; ++stage) {
    std::int64_t sent = 0, rows = 0;
    double time = 0, time_of_rows = 0;
    for (const sim::MessageTraffic& t : detail.traffic)
      if (t.stage == stage) {
        sent += t.sent.value * t.messages;
        time += t.duration.value;
      }
    for (const sim::Row& row : report.rows)
      if (row.rank == stage * ranks_of_stage && sim::is_collective(row.kind) &&
          row.kind != sim::OpKind::receive) {
        rows += row.network.value;
        time_of_rows += row.duration.value;
      }
    INFO("stage " << stage);
    CHECK(sent == rows);
    CHECK(time == Approx(time_of_rows));
  }
}

TEST_CASE("what is exposed is part of what is exchanged, without overlap in a plan all of it is") {
  const sim::Scenario s = divided(GENERATE(0, 1, 3));
  const sim::StepDetail detail = sim::step_detail(sim::make_plan(s), s.hardware);
  for (const sim::MessageTraffic& t : detail.traffic) {
    CHECK(t.exposed.value >= 0);
    CHECK(t.exposed.value <= t.duration.value * (1 + 1e-9));
    // Tensor-parallel sums stand between the products that need them.
    const bool in_compute =
        t.kind == sim::OpKind::all_reduce && t.duration.value > 1e-3 && s.strategy.zero_stage > 0;
    if (in_compute) CHECK(t.exposed.value == Approx(t.duration.value));
  }
}

TEST_CASE("a stage's memory over the step reaches the peak of its memory plan and no more") {
  sim::Scenario s = divided(1);
  const bool pipelined = GENERATE(true, false);
  if (!pipelined) {
    s.strategy.pipeline_parallel = 1;
    s.strategy.tensor_parallel = 8;
  }
  const sim::Plan plan = sim::make_plan(s);
  const sim::StepDetail detail = sim::step_detail(plan, s.hardware, nullptr, 500);
  REQUIRE(detail.memory.size() == plan.programs.size());
  for (std::size_t stage = 0; stage < plan.programs.size(); ++stage) {
    const sim::MemoryPlan memory = sim::plan_memory(plan, stage, sim::Addresses::none);
    sim::Bytes most;
    bool ordered = true;
    const auto& points = detail.memory[stage];
    for (std::size_t i = 0; i < points.size(); ++i) {
      most = std::max(most, sim::total(points[i].bytes));
      ordered = ordered && (i == 0 || points[i - 1].time <= points[i].time);
    }
    CHECK(most == memory.live_peak);
    CHECK(ordered);
  }
}

TEST_CASE("micro-batches that repeat each other each have their rise and fall of memory") {
  sim::Scenario s = divided(0);
  s.strategy = {};
  s.workload.global_batch_size = 8;
  const sim::Plan plan = sim::make_plan(s);
  const sim::StepDetail detail = sim::step_detail(plan, s.hardware);
  const auto& points = detail.memory.front();
  const auto activation = static_cast<std::size_t>(sim::BufferClass::activation);
  const auto held = [&](std::size_t i) { return points[i].bytes[activation].value; };
  std::int64_t most = 0;
  for (std::size_t i = 0; i < points.size(); ++i) most = std::max(most, held(i));
  int rises = 0;
  bool high = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!high && held(i) > most * 9 / 10) {
      ++rises;
      high = true;
    }
    if (held(i) < most / 2) high = false;
  }
  CHECK(rises == 8);
}

TEST_CASE("in the first step the moments are not there before its optimizer makes them") {
  sim::Scenario s = divided(0);
  const bool lazy = GENERATE(false, true);
  s.implementation.memory.lazy_optimizer = lazy;
  const sim::StepDetail detail = sim::step_detail(sim::make_plan(s), s.hardware);
  const auto optimizer = static_cast<std::size_t>(sim::BufferClass::optimizer);
  REQUIRE_FALSE(detail.first_step.empty());
  const std::int64_t begin = detail.first_step.front().bytes[optimizer].value;
  const std::int64_t end = detail.first_step.back().bytes[optimizer].value;
  CHECK((begin < end) == lazy);
  for (const auto& stage : detail.memory)
    CHECK(stage.front().bytes[optimizer] == stage.back().bytes[optimizer]);
}

TEST_CASE("the bubble of equal stages with free transfers is the closed form") {
  const std::string schedule = GENERATE("gpipe", "1f1b", "interleaved", "zb-h1");
  const int stages = GENERATE(2, 4, 8), micro_batches = GENERATE(8, 32);
  const int chunks = schedule == "interleaved" ? 2 : 1;
  const sim::PassTimes times{Seconds{1}, Seconds{1}, Seconds{1}};
  const auto timeline = timeline_of(sim::make_schedule(schedule, stages, chunks, micro_batches), times);
  const auto closed = sim::closed_form_bubble(timeline, schedule);
  REQUIRE(closed);
  Seconds end, work;
  for (const sim::TimelineSlot& slot : timeline) {
    end = std::max(end, slot.end);
    work += (slot.end - slot.start) * (1.0 / stages);
  }
  INFO(schedule << ", " << stages << " stages, " << micro_batches << " micro-batches");
  CHECK((end - work).value == Approx(closed->value));
  // Narayanan et al. 2021: (p - 1) / (v m) of the time that is work.
  if (schedule != "zb-h1") CHECK(*closed / work == Approx((stages - 1.0) / (chunks * micro_batches)));
}

TEST_CASE("a schedule without a known closed form has none, and an empty timeline no bubble") {
  CHECK_FALSE(sim::closed_form_bubble("another", 4, 1, 8, {Seconds{1}, Seconds{1}, Seconds{1}}));
  CHECK_FALSE(sim::closed_form_bubble({}, "1f1b"));
}
