// Where a step's time goes, cause by cause, and what would change it most.
#include <cmath>

#include "app/gui/jobs/waterfall.h"
#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "tests/gui/null_desktop.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

using namespace app::gui;

TEST_CASE("causes are never negative and add up to the step, of any scenario") {
  int priced = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    sim::Scenario s = seed % 2 == 0 ? test::random_scenario(seed) : test::random_parallel_scenario(seed);
    s.hardware = sim::load_hardware_preset("h100-sxm");
    CAPTURE(seed);
    if (!sim::validate(s).empty()) continue;
    const sim::Report report = sim::predict(s);
    const Waterfall waterfall = waterfall_of(report);
    double sum = 0;
    for (const sim::Seconds seconds : waterfall) {
      CHECK(seconds.value >= -1e-12 * report.step_time.value);
      sum += seconds.value;
    }
    const double whole = sim::step_parts(report).whole.value;
    CHECK(std::abs(sum - whole) <= 1e-9 * whole);
    ++priced;
  }
  CHECK(priced > 50);
}

TEST_CASE("the ideal is the step's FLOPs at the dense peak, where all that is computed is counted once") {
  sim::Scenario s = tests::small_scenario();
  s.strategy.recompute = sim::Recompute::none;
  const sim::Report report = sim::predict(s);
  const Waterfall waterfall = waterfall_of(report);
  const double ideal = waterfall[static_cast<std::size_t>(Cause::ideal)].value;
  CHECK(waterfall[static_cast<std::size_t>(Cause::recompute)].value == 0);
  // HFU is that share of the step by its definition.
  CHECK(std::abs(ideal / report.step_time.value / sim::hfu(report) - 1) < 0.01);
  s.strategy.recompute = sim::Recompute::full;
  const sim::Report again = sim::predict(s);
  const Waterfall with = waterfall_of(again);
  CHECK(with[static_cast<std::size_t>(Cause::recompute)].value > 0.1 * again.step_time.value);
  CHECK(std::abs(with[static_cast<std::size_t>(Cause::ideal)].value / ideal - 1) < 0.01);
}

TEST_CASE(
    "generation's limit is its traffic: bytes of its operations at the full bandwidth, and no more than "
    "they") {
  sim::Scenario s = tests::small_scenario();
  s.workload.task = sim::Task::generate;
  s.model = sim::load_model_preset("llama-3.1-8b");
  s.workload.dtype = sim::DType::bf16;
  s.workload.batch_size = 1;
  s.workload.prompt_length = 128;
  s.workload.max_new_tokens = 64;
  const sim::Report report = sim::predict(s);
  const Waterfall waterfall = waterfall_of(report);
  double bytes = 0;
  for (const sim::Row& row : report.rows) bytes += static_cast<double>(row.memory.value);
  const double at_bandwidth = bytes / s.hardware.memory_bandwidth.value;
  const double limit = waterfall[static_cast<std::size_t>(Cause::ideal)].value +
                       waterfall[static_cast<std::size_t>(Cause::traffic)].value;
  CHECK(limit <= at_bandwidth * (1 + 1e-9));
  CHECK(limit > 0.5 * at_bandwidth);
  CHECK(waterfall[static_cast<std::size_t>(Cause::traffic)].value >
        10 * waterfall[static_cast<std::size_t>(Cause::ideal)].value);
}

TEST_CASE("a bar of the tornado is what the changed scenario is predicted, and no legal double is larger") {
  const sim::Scenario s = tests::small_scenario();
  TornadoStudy study(tornado_of, [] {});
  study.ask({s, nullptr});
  study.wait();
  study.poll();
  REQUIRE(study.result());
  const auto& bars = study.result()->bars;
  REQUIRE(bars.size() > 3);
  const double now = sim::tokens_per_second(sim::predict(s));
  for (std::size_t i = 0; i < bars.size(); ++i) {
    CAPTURE(bars[i].label);
    CHECK(sim::validate(bars[i].scenario).empty());
    CHECK(std::abs(sim::tokens_per_second(sim::predict(bars[i].scenario)) / now - 1 - bars[i].faster) < 1e-9);
    if (i > 0) CHECK(std::abs(bars[i - 1].faster) >= std::abs(bars[i].faster));
  }
}

TEST_CASE("Why draws at every size, says what most is lost to, and exports its causes") {
  const ImVec2 size = GENERATE(ImVec2{500, 700}, ImVec2{1280, 720}, ImVec2{1920, 1080});
  sim::Scenario s = tests::small_scenario();
  s.strategy.pipeline_parallel = 4;
  tests::NullDesktop desktop(s, size);
  desktop.shell().view().maximised = "why";
  desktop.settle_studies();
  CHECK(GImGui->ErrorCountCurrentFrame == 0);
  CHECK_THAT(desktop.words(), contains("is the roofline's limit"));
  const std::string csv = desktop.shell().exported("why", ExportFormat::csv);
  CHECK_THAT(csv, contains("pipeline bubble"));
  CHECK_THAT(csv, contains("change,tokens_a_second_change_share,fits"));
}

TEST_CASE(
    "Why names every cause and every change whole in a panel of 487 points, and has both parts in 965") {
  const std::string task = GENERATE("train-llama-3.1-8b-8-h100", "chat-llama-3.1-8b-h100");
  tests::NullDesktop desktop(sim::load_scenario_preset(task), {487 + 16, 616});
  desktop.shell().commands().invoke("maximise.why");
  desktop.settle_studies();
  const auto cut = [&] { return desktop.words().find("\u2026") != std::string::npos; };
  CHECK(desktop.says("From the peak"));
  CHECK(desktop.says("memory traffic, at full bandwidth"));
  CHECK_FALSE(cut());
  // To the other part, by its tab.
  for (float x = 20; x < 480 && !desktop.says("What would change it most"); x += 40) desktop.click({x, 60});
  CHECK(desktop.says("What would change it most"));
  CHECK_FALSE(cut());
  desktop.resize({965 + 16, 575 + 16});
  desktop.settle_studies();
  CHECK(desktop.says("From the peak"));
  CHECK(desktop.says("What would change it most"));
  CHECK_FALSE(cut());
}
