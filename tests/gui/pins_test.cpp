// Scenarios and runs beside each other.
#include "app/gui/pins.h"

#include <cmath>
#include <filesystem>

#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace app::gui;

namespace {

std::shared_ptr<const sim::Report> report_of(const sim::Scenario& s) {
  return std::make_shared<const sim::Report>(sim::predict(s));
}

sim::Scenario pipelined(int stages) {
  sim::Scenario s = tests::small_scenario();
  s.strategy.pipeline_parallel = stages;
  s.workload.global_batch_size = 16;
  return s;
}

}  // namespace

TEST_CASE("five are pinned at most, letters stay, and a letter that is free is given again") {
  Pins pins;
  CHECK(pins.baseline() == nullptr);
  for (std::size_t i = 0; i < kPins; ++i) CHECK(pins.add(report_of(pipelined(1))));
  CHECK_FALSE(pins.add(report_of(pipelined(1))));
  pins.make_baseline(3);
  CHECK(pins.baseline()->letter == 'D');
  pins.remove(1);
  CHECK(pins.baseline()->letter == 'D');
  CHECK(pins.add(report_of(pipelined(2))));
  CHECK(pins.all()[1].letter == 'B');
  CHECK(pins.baseline()->letter == 'D');
  CHECK_FALSE(pins.add(pins.all()[0].report));
  pins.remove(3);
  CHECK(pins.baseline()->letter == 'A');
}

TEST_CASE(
    "the sentence of a difference names the part that differs most, by how much, and what was changed") {
  Pins pins;
  const auto one = report_of(pipelined(1)), four = report_of(pipelined(4));
  pins.add(one);
  const std::string words = what_made_the_difference(*four, *pins.baseline());
  CAPTURE(words);
  const double faster = sim::tokens_per_second(*four) / sim::tokens_per_second(*one) - 1;
  CHECK_THAT(words, contains(sim::format_percent(std::abs(faster)) + (faster > 0 ? " faster" : " slower")));
  CHECK_THAT(words, contains("than pin A"));
  CHECK_THAT(words, contains("pipeline 1 \u2192 4."));
  CHECK_THAT(words, contains("more pipeline bubble"));
  CHECK_THAT(what_made_the_difference(*one, *pins.baseline()), contains("As fast as pin A"));
}

TEST_CASE("a pinned scenario stands beside what is configured, with the difference, and swaps with it") {
  const ImVec2 size = GENERATE(ImVec2{1280, 720}, ImVec2{1920, 1080});
  tests::NullDesktop desktop(pipelined(1), size);
  Shell& shell = desktop.shell();
  desktop.press(ImGuiKey_P);
  REQUIRE(shell.pins().all().size() == 1);
  const sim::Scenario before = shell.document().scenario();
  shell.document().edit("pipeline", pipelined(4));
  desktop.settle();
  CHECK(desktop.says("against pin A"));
  shell.view().maximised = "pins";
  desktop.settle();
  const std::string words = desktop.words();
  CHECK_THAT(words, contains("pin A, baseline"));
  CHECK_THAT(words, contains("than pin A"));
  const std::string csv = shell.exported("pins", ExportFormat::csv);
  CHECK_THAT(csv, contains("now_against_pin_a"));
  CHECK_THAT(shell.exported("memory", ExportFormat::csv), contains("pin A"));
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_B);
  desktop.settle();
  CHECK(shell.document().scenario() == before);
  CHECK(shell.pins().baseline()->scenario() == pipelined(4));
  shell.document().undo();
  CHECK(shell.document().scenario() == pipelined(4));
}

TEST_CASE(
    "runs that ended are kept for the next session, the newest first and no more than there is room for") {
  const auto folder = std::filesystem::temp_directory_path() / "ridgepoint_runs_test";
  std::filesystem::remove_all(folder);
  {
    RunHistory history(folder);
    for (std::size_t i = 0; i < RunHistory::kMost + 3; ++i) {
      sim::Report report = *report_of(pipelined(1));
      report.source.kind = sim::ReportKind::measured;
      report.source.date = "2026-01-" + std::to_string(10 + i) + "T00:00:00";
      history.add(std::make_shared<const sim::Report>(std::move(report)));
    }
  }
  const RunHistory again(folder);
  REQUIRE(again.all().size() == RunHistory::kMost);
  CHECK(again.all().front()->source.date == "2026-01-32T00:00:00");
  CHECK(again.all().back()->source.date == "2026-01-13T00:00:00");
  std::filesystem::remove_all(folder);
}

TEST_CASE("a run that cannot be kept stays in the list with the reason, and a damaged one is set aside") {
  const TemporaryFolder folder;
  sim::Report report = *report_of(pipelined(1));
  report.source.kind = sim::ReportKind::measured;
  report.source.date = "2026-01-10T00:00:00";
  RunHistory nowhere(folder.write("a_file", "no folder") / "runs");
  nowhere.add(std::make_shared<const sim::Report>(report));
  CHECK(nowhere.all().size() == 1);
  CHECK(nowhere.failure().find("not kept") != std::string::npos);

  const std::filesystem::path runs = folder.path() / "runs";
  {
    RunHistory history(runs);
    history.add(std::make_shared<const sim::Report>(report));
    CHECK(history.failure().empty());
  }
  folder.write("runs/2026-01-11_half.json", "{\"schema_version\": 1, \"rows\": [");
  const RunHistory again(runs);
  CHECK(again.all().size() == 1);
  CHECK_FALSE(std::filesystem::exists(runs / "2026-01-11_half.json"));
  CHECK(std::filesystem::exists(runs / "2026-01-11_half.json.set-aside"));
}
