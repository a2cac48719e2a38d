// What an edit changes is seen: on the tiles for two seconds, in the fields as what they were before.
#include "app/gui/panels/last_change.h"

#include "app/cli/scenario_flags.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "tests/gui/drawn_text.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;
using tests::NullDesktop;

namespace {

sim::Scenario with_micro_batch(std::int64_t sequences) {
  sim::Scenario scenario = tests::small_scenario();
  scenario.workload.micro_batch_size = scenario.workload.global_batch_size = sequences;
  return scenario;
}

}  // namespace

TEST_CASE("an edit's change is shown for two seconds, one of another tab or task never") {
  const auto report = [](const sim::Scenario& scenario) {
    return std::make_shared<const sim::Report>(sim::predict(scenario));
  };
  const auto four = report(with_micro_batch(4)), eight = report(with_micro_batch(8));
  LastChange change;
  change.follow(four, 1, 0);
  CHECK_FALSE(change.before(0));
  change.follow(eight, 1, 10);
  CHECK(change.before(10) == four.get());
  change.follow(eight, 1, 11.9);
  CHECK(change.before(11.9) == four.get());
  CHECK_FALSE(change.before(12.1));
  change.follow(four, 2, 20);
  CHECK_FALSE(change.before(20));
  sim::Scenario generate = with_micro_batch(4);
  generate.workload.task = sim::Task::generate;
  change.follow(report(generate), 2, 30);
  CHECK_FALSE(change.before(30));
}

TEST_CASE(
    "tiles say by how much the last edit changed them, then what they said before, with one frame more") {
  NullDesktop desktop;
  desktop.live(1);
  CHECK_FALSE(desktop.says("by the last edit"));
  const auto calibration = app::cli::calibration_of(tests::small_scenario().hardware);
  REQUIRE(calibration);
  const double before = sim::predict(with_micro_batch(4), &*calibration).step_time.value,
               after = sim::predict(with_micro_batch(8), &*calibration).step_time.value;
  desktop.shell().document().edit("micro-batch 4 to 8", with_micro_batch(8));
  desktop.settle();
  const std::string words = desktop.words();
  CHECK(words.find("\u25b2 " + sim::format_percent(after / before - 1)) != std::string::npos);
  CHECK(words.find("by the last edit") != std::string::npos);
  desktop.frame();
  for (const std::string& problem : tests::unreadable_text()) FAIL_CHECK(problem);
  desktop.live(1);
  const std::size_t settled = desktop.shell().frames_drawn();
  desktop.live(4);
  CHECK(desktop.shell().frames_drawn() == settled + 1);
  CHECK_FALSE(desktop.says("by the last edit"));
}

TEST_CASE("a field says what it was before the last edit, and what it is in the baseline") {
  NullDesktop desktop(with_micro_batch(4), {1920, 1080});
  desktop.press(ImGuiKey_P);
  CHECK_FALSE(desktop.says("was 4"));
  desktop.shell().document().edit("micro-batch 4 to 8", with_micro_batch(8));
  desktop.settle();
  CHECK(desktop.says("was 4"));
  CHECK(desktop.says("A 4"));
  desktop.shell().document().edit("micro-batch 8 to 16", with_micro_batch(16));
  desktop.settle();
  CHECK(desktop.says("was 8"));
  CHECK(desktop.says("A 4"));
  desktop.frame();
  for (const std::string& problem : tests::unreadable_text()) FAIL_CHECK(problem);
}
