#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using namespace sim;

TEST_CASE("a long generation is predicted as the plan of all its tokens is, to one in a thousand") {
  const auto near = [](auto a, auto b) {
    return std::abs(static_cast<double>(a) - static_cast<double>(b)) <= 1e-3 * static_cast<double>(b);
  };
  const char* model = GENERATE("gpt2-124m", "gpt-oss-20b", "deepseek-v2-lite");
  const char* implementation = GENERATE("ridgepoint", "transformers_eager");
  const bool kv_cache = GENERATE(true, false);
  const int stages = GENERATE(1, 3);
  Scenario s;
  s.model = load_model_preset(model);
  s.hardware = load_hardware_preset("h100-sxm");
  s.implementation = load_implementation_preset(implementation);
  s.workload.task = Task::generate;
  s.workload.prompt_length = 100;
  s.workload.max_new_tokens = 400;
  s.workload.batch_size = 3;
  s.workload.kv_cache = kv_cache;
  s.strategy.pipeline_parallel = stages;
  CAPTURE(model, implementation, kv_cache, stages);
  const std::optional<Calibration> calibration = load_calibration_preset("h100-sxm");
  const Report quick = predict(s, &*calibration);
  const Report whole = predict(make_plan(s), s.hardware, &*calibration);

  CHECK(near(quick.step_time.value, whole.step_time.value));
  CHECK(near(quick.step_low.value, whole.step_low.value));
  CHECK(near(quick.step_high.value, whole.step_high.value));
  REQUIRE(quick.tokens.size() == whole.tokens.size());
  double worst = 0;
  for (std::size_t t = 0; t < whole.tokens.size(); ++t)
    worst = std::max(worst, std::abs(quick.tokens[t].duration / whole.tokens[t].duration - 1));
  // Prices of one token go by tiles of its rows.
  CHECK(worst < 0.03);
  REQUIRE(quick.rows.size() == whole.rows.size());
  for (std::size_t r = 0; r < whole.rows.size(); ++r) {
    const Row &a = quick.rows[r], &b = whole.rows[r];
    CAPTURE(b.id);
    CHECK(a.id == b.id);
    CHECK(a.phase == b.phase);
    CHECK(a.count == b.count);
    CHECK(a.start == b.start);
    CHECK(near(a.duration.value, b.duration.value));
    // Error bands of tables have steps.
    CHECK(a.low.value == Approx(b.low.value).epsilon(0.02));
    CHECK(a.high.value == Approx(b.high.value).epsilon(0.02));
    CHECK(near(a.flops.value, b.flops.value));
    CHECK(near(a.memory.value, b.memory.value));
    CHECK(a.bound == b.bound);
  }
  REQUIRE(quick.memory.size() == whole.memory.size());
  for (std::size_t l = 0; l < whole.memory.size(); ++l) {
    CHECK(quick.memory[l].category == whole.memory[l].category);
    CHECK(quick.memory[l].bytes == whole.memory[l].bytes);
  }
  // Both show the step from its begin to its end, and the peak.
  const auto most = [](const Report& r) {
    Bytes peak;
    for (const MemoryTimePoint& p : r.memory_timeline) peak = std::max(peak, total(p.bytes));
    return peak;
  };
  CHECK(most(quick) == most(whole));
  // A later stage has its first point, the largest of an interval, somewhere in the first tokens.
  if (stages == 1)
    CHECK(near(quick.memory_timeline.front().time.value, whole.memory_timeline.front().time.value));
  for (const Report* report : {&quick, &whole})
    CHECK(report->memory_timeline.front().time < report->step_time * 0.05);
  CHECK(quick.memory_timeline.back().time > quick.step_time * 0.99);
}
