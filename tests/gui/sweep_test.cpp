// One field swept: the panel's study, driven through the window.
#include "app/gui/panels/sweep.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "programs.h"
#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "tests/gui/null_desktop.h"
#include "tests/gui/panel_body.h"
#include "tests/support/cache_folder.h"
#include "tests/support/catch.h"
#include "tests/support/changed_fields.h"
#include "tests/support/known_machine.h"

TEST_CASE(
    "a sweep draws what the scenario would be predicted with another value, and a click takes it over") {
  tests::NullDesktop desktop(tests::small_scenario(), {1280, 800});
  desktop.shell().commands().invoke("maximise.sweep");
  desktop.settle_studies();
  auto& document = desktop.shell().document();
  const sim::Scenario before = document.scenario();
  CHECK(desktop.says("now"));
  // The least value that was legal is the dot at the left end of the memory's chart.
  const ImGuiWindow* body = tests::body_of_maximised();
  REQUIRE(body);
  std::string told;
  for (float x = body->Pos.x; told.empty() && x < body->Pos.x + 160; x += 8)
    for (float y = body->Pos.y + 60; told.empty() && y < body->Pos.y + body->Size.y; y += 8) {
      ImGui::GetIO().AddMousePosEvent(x, y);
      desktop.frame();
      const std::string words = desktop.words();
      if (const auto at = words.find("sequence 16:"); at != std::string::npos) told = words.substr(at);
    }
  sim::Scenario other = before;
  other.workload.seq_len = 16;
  const sim::Report report = sim::predict(other);
  CHECK_THAT(told, contains(sim::format(sim::peak_memory(report))));
  desktop.click(ImGui::GetIO().MousePos);
  CHECK(test::changed_fields(before, document.scenario()) == std::set<std::string>{"workload.seq_len"});
  CHECK(document.scenario().workload.seq_len == 16);
  document.undo();
  CHECK(document.scenario() == before);
}

TEST_CASE(
    "a sweep draws at every size, of training and of generation, and says when nothing can be compared") {
  const sim::Task task = GENERATE(sim::Task::train, sim::Task::generate);
  const ImVec2 size = GENERATE(ImVec2{500, 700}, ImVec2{1280, 800});
  sim::Scenario s = tests::small_scenario();
  s.workload.task = task;
  tests::NullDesktop desktop(s, size);
  desktop.shell().commands().invoke("maximise.sweep");
  desktop.settle_studies();
  CHECK(GImGui->ErrorCountCurrentFrame == 0);
  CHECK(ImGui::GetDrawData()->TotalVtxCount > 500);
  s.workload.seq_len = s.workload.prompt_length = 1;
  s.model.max_position_embeddings = 1;
  desktop.shell().document().edit("one token", s);
  desktop.settle_studies();
  if (task == sim::Task::train) CHECK(desktop.says("Nothing to compare"));
}

TEST_CASE("a curve for each way to recompute: every point is what that scenario is predicted") {
  sim::Scenario s = tests::small_scenario();
  tests::NullDesktop desktop(s, {1280, 800});
  auto& state = desktop.state<app::gui::SweepState>();
  state.field = "workload.seq_len";
  state.by = "strategy.recompute";
  desktop.shell().view().maximised = "sweep";
  desktop.settle_studies();
  REQUIRE(state.study.result());
  std::set<std::string> labels;
  const auto calibration = sim::load_calibration_preset("h100-sxm");
  for (const app::gui::SweepCurve& curve : state.study.result()->curves) {
    labels.insert(curve.label);
    for (const app::gui::SweepPoint& p : curve.points) {
      sim::Scenario other = curve.scenario;
      other.workload.seq_len = std::llround(p.value);
      const sim::Report report = sim::predict(other, calibration ? &*calibration : nullptr);
      CHECK(p.memory == static_cast<double>(sim::peak_memory(report).value));
      CHECK(p.tokens_per_second == sim::tokens_per_second(report));
      CHECK(test::changed_fields(curve.scenario, other) ==
            (other == curve.scenario ? std::set<std::string>{} : std::set<std::string>{"workload.seq_len"}));
    }
  }
  for (const char* label : {"recompute none", "recompute selective", "recompute full"})
    CHECK(labels.count(label));
  const std::string svg = desktop.shell().exported("sweep", app::gui::ExportFormat::svg);
  CHECK_THAT(svg, contains("recompute full") && contains("Memory of gpt2-124m against sequence"));
}

TEST_CASE(
    "while a field changes a sweep of 200 scenarios is drawn from estimates, which predictions replace") {
  sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  tests::NullDesktop desktop(s, {1280, 800});
  auto& state = desktop.state<app::gui::SweepState>();
  state.field = "workload.seq_len";
  state.by = "workload.global_batch_size";
  desktop.shell().view().maximised = "sweep";
  desktop.settle_studies();
  s.workload.seq_len = 7680;
  desktop.shell().document().edit("sequence", s);
  const auto points_of = [](const app::gui::Sweep& sweep) {
    std::vector<app::gui::SweepPoint> all;
    for (const app::gui::SweepCurve& curve : sweep.curves)
      all.insert(all.end(), curve.points.begin(), curve.points.end());
    return all;
  };
  // The first answer to the new scenario, which may be the last where this test is slow.
  std::vector<app::gui::SweepPoint> first;
  while (first.empty()) {
    desktop.frame();
    if (state.study.request().scenario == s) first = points_of(*state.study.result());
  }
  desktop.settle_studies();
  const std::vector<app::gui::SweepPoint> last = points_of(*state.study.result());
  REQUIRE(first.size() == last.size());
  CHECK(last.size() >= 200);
  for (std::size_t i = 0; i < last.size(); ++i) {
    CHECK(first[i].value == last[i].value);
    CHECK(first[i].step == Approx(last[i].step).epsilon(0.005));  // sim/planner/estimate.h
    CHECK(first[i].memory == Approx(last[i].memory).epsilon(0.005));
    CHECK(first[i].utilization == Approx(last[i].utilization).epsilon(0.005));
  }
}

TEST_CASE(
    "any number can be swept, the batch follows what it is divided over, and a baseline is a curve of its "
    "own") {
  sim::Scenario s = tests::small_scenario();
  tests::NullDesktop desktop(s, {1280, 800});
  auto& state = desktop.state<app::gui::SweepState>();
  desktop.press(ImGuiKey_P);
  s.workload.seq_len = 512;
  desktop.shell().document().edit("sequence", s);
  state.field = "strategy.data_parallel";
  desktop.shell().view().maximised = "sweep";
  desktop.settle_studies();
  REQUIRE(state.study.result());
  const auto& curves = state.study.result()->curves;
  REQUIRE(curves.size() == 2);
  CHECK(curves[0].points.size() > 4);
  CHECK(curves[1].of_baseline);
  for (std::size_t i = 1; i < curves[0].points.size(); ++i)
    CHECK(curves[0].points[i].tokens_per_second > curves[0].points[i - 1].tokens_per_second);
}

TEST_CASE(
    "a sweep is measured here: a run for each value, drawn over the prediction as it arrives, and exported") {
  const CacheFolder cache;
  tests::keep_known_machine();
  sim::Scenario s = tests::small_scenario();
  s.model = sim::load_model_preset("tiny-llama");
  s.workload.seq_len = 64;
  s.workload.micro_batch_size = s.workload.global_batch_size = 1;
  tests::NullDesktop desktop(s, {1280, 800}, {}, RIDGEPOINT_PROGRAM);
  desktop.shell().commands().invoke("maximise.sweep");
  desktop.settle_studies();
  auto& state = desktop.state<app::gui::SweepState>();
  const ImGuiWindow* body = tests::body_of_maximised();
  REQUIRE(body);
  ImGui::ActivateItemByID(ImHashStr("Measure here", 0, body->ID));
  desktop.frames(2);
  REQUIRE(state.measuring.progress().running);
  CHECK(desktop.says("Stop"));
  desktop.settle_studies();
  REQUIRE(state.measuring.progress().failure.empty());
  const app::gui::MeasuredSweep& measured = *state.measuring.result();
  for (const std::string& reason : measured.left_out) UNSCOPED_INFO(reason);
  REQUIRE(measured.points.size() >= 4);
  // Each half and double of those that are predicted was run, or is left out with its reason.
  const auto& predicted = state.study.result()->curves.front().points;
  CHECK(measured.points.size() + measured.left_out.size() ==
        static_cast<std::size_t>(
            std::count_if(predicted.begin(), predicted.end(), [](const app::gui::SweepPoint& point) {
              const double doublings = std::log2(point.value / 64);
              return doublings == std::round(doublings);
            })));
  for (std::size_t i = 0; i < measured.points.size(); ++i) {
    const app::gui::SweepPoint& point = measured.points[i];
    CAPTURE(point.value);
    CHECK(point.tokens_per_second * point.step == Approx(point.value));  // one sequence a step
    CHECK(point.memory > 0);
    if (i > 0) CHECK(point.value > measured.points[i - 1].value);
  }
  CHECK(desktop.says("measured"));
  CHECK_THAT(desktop.shell().exported("sweep", app::gui::ExportFormat::csv), contains("measured"));
  // They are no points of another model's curve.
  s.model = sim::load_model_preset("gpt2-124m");
  desktop.shell().document().edit("another model", s);
  desktop.settle_studies();
  CHECK_THAT(desktop.shell().exported("sweep", app::gui::ExportFormat::csv), !contains("measured"));
}

TEST_CASE("a sweep says what its red dots are where it has some, at every size, and only there") {
  const ImVec2 size = GENERATE(ImVec2{500, 700}, ImVec2{1280, 720}, ImVec2{2560, 1440});
  const bool too_large = GENERATE(false, true);
  sim::Scenario s = tests::small_scenario();
  // Half of a GiB more a sequence: six doublings of four are beyond any device.
  tests::NullDesktop desktop(s, size);
  auto& state = desktop.state<app::gui::SweepState>();
  state.field = too_large ? "workload.micro_batch_size" : "implementation.head_chunks";
  desktop.shell().view().maximised = "sweep";
  desktop.settle_studies();
  REQUIRE(state.study.result());
  bool any = false;
  for (const app::gui::SweepCurve& curve : state.study.result()->curves)
    for (const app::gui::SweepPoint& p : curve.points)
      any = any || p.memory > static_cast<double>(s.hardware.memory.value);
  REQUIRE(any == too_large);
  CHECK(desktop.says("does not fit the device's memory") == too_large);
}

TEST_CASE("curves of a sweep are named as Configure says their field and value") {
  tests::NullDesktop desktop(tests::small_scenario(), {1280, 800});
  auto& state = desktop.state<app::gui::SweepState>();
  state.field = "workload.seq_len";
  const auto [by, names] =
      GENERATE(std::pair{std::string("implementation.fused_residual"),
                         std::set<std::string>{"fused residual off", "fused residual on"}},
               std::pair{std::string("strategy.offload_optimizer"),
                         std::set<std::string>{"offload opt. off", "offload opt. on"}});
  state.by = by;
  desktop.shell().view().maximised = "sweep";
  desktop.settle_studies();
  REQUIRE(state.study.result());
  std::set<std::string> labels;
  for (const app::gui::SweepCurve& curve : state.study.result()->curves) labels.insert(curve.label);
  CHECK(labels == names);
}
