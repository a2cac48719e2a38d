// One field swept: the panel's study, driven through the window.
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/changed_fields.h"

namespace {

const ImGuiWindow* body_of_maximised() {
  const ImGuiWindow* panel = ImGui::FindWindowByName("##maximised");
  for (const ImGuiWindow* window : GImGui->Windows)
    if (panel && window->ParentWindow == panel && window->Active) return window;
  return nullptr;
}

}  // namespace

TEST_CASE(
    "a sweep draws what the scenario would be predicted with another value, and a click takes it over") {
  tests::NullDesktop desktop(tests::small_scenario(), {1280, 800});
  desktop.shell().commands().invoke("maximise.sweep");
  desktop.settle_studies();
  auto& document = desktop.shell().document();
  const sim::Scenario before = document.scenario();
  CHECK(desktop.says("now"));
  // The least value that was legal is the dot at the left end of the memory's chart.
  const ImGuiWindow* body = body_of_maximised();
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
