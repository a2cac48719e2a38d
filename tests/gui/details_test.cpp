// Small things at the hand's side: what a number is under the pointer, a device's line that is dragged,
// several steps back, a report of a defect.
#include <string>

#include "app/gui/figures/export.h"
#include "sim/cost/predict.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;
using tests::NullDesktop;

namespace {

ImVec2 middle_of(const ImGuiWindow* window, float x, float y) {
  return {window->Pos.x + window->Size.x * x, window->Pos.y + window->Size.y * y};
}

}  // namespace

TEST_CASE("a tile under the pointer says its formula with the numbers put in, without a click") {
  NullDesktop desktop;
  desktop.settle();
  const ImGuiWindow* overview = desktop.window_of("overview");
  REQUIRE(overview);
  const Quantity before = desktop.shell().view().selection.quantity;
  const ImVec2 at = middle_of(overview, 0.58f, 0.25f);
  ImGui::GetIO().AddMousePosEvent(at.x, at.y);
  desktop.frames(60);
  CHECK(desktop.says("Click"));
  CHECK(desktop.says("FLOPs a token x tokens/s"));
  CHECK(desktop.shell().view().selection.quantity == before);
}

TEST_CASE(
    "the line of a device's memory is dragged: what would fit is said, and a double click gives it back") {
  sim::Scenario scenario = tests::small_scenario();
  scenario.model = sim::load_model_preset("llama-3.2-3b");
  scenario.workload.micro_batch_size = scenario.workload.global_batch_size = 1;
  NullDesktop desktop(scenario);
  desktop.shell().view().maximised = "memory";
  desktop.settle();
  // Where the pointer's shape says that something can be dragged.
  ImVec2 at = {0, 0};
  for (float x = 20; x < 1590 && at.x == 0; x += 4) {
    ImGui::GetIO().AddMousePosEvent(x, 180);
    desktop.frames(2);
    if (ImGui::GetMouseCursor() == ImGuiMouseCursor_ResizeEW) at = {x, 180};
  }
  REQUIRE(at.x > 0);
  CHECK_FALSE(desktop.says("a device of"));
  ImGui::GetIO().AddMouseButtonEvent(0, true);
  desktop.frames(2);
  ImGui::GetIO().AddMousePosEvent(at.x / 3, 180);
  desktop.frames(3);
  ImGui::GetIO().AddMouseButtonEvent(0, false);
  desktop.frames(2);
  CHECK(desktop.says("a device of"));
  CHECK(desktop.shell().document().scenario() == scenario);
}

TEST_CASE("a generation that writes no words says why: weights of a preset are drawn at random") {
  sim::Scenario scenario = tests::small_scenario();
  scenario.workload.task = sim::Task::generate;
  sim::Report run = sim::predict(scenario);
  run.source.kind = sim::ReportKind::measured;
  NullDesktop desktop(scenario);
  desktop.shell().view().maximised = "live";
  for (const char* word : {"", " ridge"}) {
    run.tokens.clear();
    for (int i = 0; i < 4; ++i) run.tokens.push_back({i, 17, word, sim::Seconds{0.01}});
    desktop.shell().show_measured(run);
    desktop.settle();
    CHECK(desktop.says("drawn at random") == !*word);
    CHECK(desktop.says("ridge ridge") == !!*word);
  }
}

TEST_CASE("several steps are undone at once, and the palette says how far back that is") {
  NullDesktop desktop;
  const sim::Scenario first = desktop.shell().document().scenario();
  for (int layers = 13; layers <= 16; ++layers) {
    sim::Scenario next = desktop.shell().document().scenario();
    next.model.num_hidden_layers = layers;
    desktop.shell().document().edit("layers " + std::to_string(layers), next);
  }
  const Command* three = desktop.shell().commands().find("edit.undo_3");
  REQUIRE(three);
  CHECK(three->detail() == "back to before layers 14");
  CHECK(is_enabled(*desktop.shell().commands().find("edit.undo_4")));
  CHECK_FALSE(is_enabled(*desktop.shell().commands().find("edit.undo_5")));
  REQUIRE(desktop.shell().commands().invoke("edit.undo_3"));
  CHECK(desktop.shell().document().scenario().model.num_hidden_layers == 13);
  REQUIRE(desktop.shell().commands().invoke("edit.undo"));
  CHECK(desktop.shell().document().scenario() == first);
}

TEST_CASE("a bug report says machine, window and scenario, and no path") {
  NullDesktop desktop;
  REQUIRE(desktop.shell().commands().invoke("help.bug_report"));
  const std::string report = ImGui::GetClipboardText();
  for (const char* words : {"program: ridgepoint ", "CPU: ", "memory: ", "device cpu: ",
                            "window: 1,600 x 1,000", "scenario: ridgepoint predict --model gpt2-124m"})
    CHECK(report.find(words) != std::string::npos);
  CHECK(report.find("/home") == std::string::npos);
  CHECK(report.find("/root") == std::string::npos);
  CHECK(report.find("/tmp") == std::string::npos);
}

TEST_CASE("a drawing says what it is of: kind, model, machine, and a hash that changes with the scenario") {
  NullDesktop desktop;
  desktop.settle();
  const auto provenance = [&] {
    const std::string svg = desktop.shell().exported("memory", ExportFormat::svg);
    const std::size_t at = svg.find("predicted, gpt2-124m on 1 x h100-sxm, scenario ");
    REQUIRE(at != std::string::npos);
    return svg.substr(at, svg.find('<', at) - at);
  };
  const std::string before = provenance();
  CHECK(provenance() == before);
  sim::Scenario next = desktop.shell().document().scenario();
  next.workload.seq_len = 512;
  desktop.shell().document().edit("shorter", next);
  desktop.settle();
  CHECK(provenance() != before);
}

TEST_CASE("what Configure holds and what one choice would change leave it as tables") {
  NullDesktop desktop;
  desktop.settle();
  const std::string csv = desktop.shell().exported("scenario", ExportFormat::csv);
  CHECK(csv.find("full recompute") != std::string::npos);
  const std::string explained = desktop.shell().exported("explain", ExportFormat::markdown);
  CHECK(explained.find("with its numbers") != std::string::npos);
}
