// What Start would meet, said before it is pressed.
#include "app/gui/jobs/outlook.h"

#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using app::gui::outlook_of;
using tests::NullDesktop;

TEST_CASE("what cannot run here says why before Start is pressed, and the nearest that can is a click away") {
  NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-405b-16384-h100"));
  desktop.settle_studies();
  app::gui::Commands& commands = desktop.shell().commands();
  CHECK_FALSE(is_enabled(*commands.find("run.start")));
  commands.invoke("maximise.live");
  CHECK(desktop.says("16,384 devices"));
  const auto outlook = outlook_of({desktop.shell().document().scenario(), 100, nullptr});
  REQUIRE(outlook.nearest);
  CHECK(sim::validate(*outlook.nearest).empty());
  CHECK(outlook_of({*outlook.nearest, 100, nullptr}).refusal.empty());
  desktop.shell().document().edit("nearest", *outlook.nearest);
  desktop.settle_studies();
  CHECK(is_enabled(*commands.find("run.start")));
}

TEST_CASE("a run is expected to take its steps times the step that is predicted of this machine") {
  auto here = std::make_shared<sim::Calibration>();
  here->hardware = sim::load_hardware_preset("h100-sxm");
  here->hardware.peak = {{sim::DType::fp32, {1e11}}};
  const sim::Scenario s = tests::small_scenario();
  const auto outlook = outlook_of({s, 250, here});
  CHECK(outlook.refusal.empty());
  REQUIRE(outlook.expected);
  const sim::Report report = sim::predict(app::gui::as_run_here(s, here.get()), here.get());
  CHECK(outlook.expected->value == Approx(250 * sim::step_time(report).value));
}

TEST_CASE("what was measured of another scenario is named, and not taken for this one") {
  NullDesktop desktop;
  sim::Report measured = sim::predict(tests::small_scenario());
  measured.source.kind = sim::ReportKind::measured;
  desktop.shell().show_measured(measured);
  desktop.shell().commands().invoke("maximise.live");
  desktop.settle();
  CHECK_FALSE(desktop.says("Not this scenario"));
  sim::Scenario other = tests::small_scenario();
  other.workload.micro_batch_size = 2;
  desktop.shell().document().edit("other", other);
  desktop.settle();
  CHECK(desktop.says("Not this scenario"));
}

TEST_CASE(
    "weights that do not learn are counted once, as they are stored: what is refused needs more than is "
    "there") {
  const auto refusal = [](const sim::Scenario& s) { return outlook_of({s, 1, nullptr}).refusal; };
  // More than any machine has, in 4 bits, too.
  sim::Model model = sim::load_model_preset("llama-3.1-405b");
  model.num_hidden_layers *= 200;
  sim::Scenario s = tests::small_scenario();
  s.model = model;
  s.workload.seq_len = 16;
  s.workload.micro_batch_size = s.workload.global_batch_size = 1;
  const double weights = static_cast<double>(sim::count_parameters(s.model).total);
  const auto least = [&](double bytes) {
    return "at least " + sim::format(sim::Bytes{static_cast<std::int64_t>(weights * bytes)});
  };
  CHECK_THAT(refusal(s), contains(least(16)));
  s.workload.lora_rank = 8;
  CHECK_THAT(refusal(s), contains(least(4)));
  s.workload.frozen_weights = sim::FrozenWeights::nf4;
  CHECK_THAT(refusal(s), contains(least(0.5)));
  s = tests::small_scenario();
  s.model = model;
  s.workload.task = sim::Task::generate;
  CHECK_THAT(refusal(s), contains(least(4)));
}
