// What a hand on mouse and keyboard does to the desktop, without a display.
#include <implot.h>
#include <implot_internal.h>

#include <algorithm>
#include <array>
#include <random>

#include "app/gui/legal.h"
#include "sim/cost/predict.h"
#include "tests/gui/null_desktop.h"
#include "tests/gui/panel_body.h"
#include "tests/support/catch.h"

using tests::NullDesktop;

namespace {

// Words that were wrapped, as one line.
std::string unwrapped(std::string words) {
  std::replace(words.begin(), words.end(), '\n', ' ');
  words.erase(std::unique(words.begin(), words.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
              words.end());
  return words;
}

int popups() {
  return GImGui->OpenPopupStack.Size;
}

}  // namespace

TEST_CASE(
    "every panel draws, with and without a run, in every theme, docked and maximised, at three scales") {
  const sim::Task task = GENERATE(sim::Task::train, sim::Task::generate);
  const bool with_run = GENERATE(false, true);
  sim::Scenario scenario = tests::small_scenario();
  scenario.workload.task = task;
  NullDesktop desktop(scenario);
  if (with_run) {
    sim::Report run = sim::predict(scenario);
    run.source.kind = sim::ReportKind::measured;
    for (int i = 1; task == sim::Task::train && i <= 20; ++i)
      run.steps.push_back({i, 5.0 / i, 1.0, sim::Seconds{0.5}, 4096});
    desktop.shell().show_measured(run);
  }
  for (std::size_t theme = 0; theme < app::kThemeNames.size(); ++theme) {
    for (const char* scale : {"view.actual_size", "view.larger", "view.smaller"}) {
      desktop.shell().commands().invoke(scale);
      for (const app::gui::PanelEntry* panel : app::gui::panels()) {
        INFO(panel->id);
        REQUIRE(desktop.shell().commands().invoke(std::string("maximise.") + panel->id));
        desktop.frames(2);
        CHECK(GImGui->ErrorCountCurrentFrame == 0);
        REQUIRE(desktop.shell().commands().invoke(std::string("panel.") + panel->id));
        desktop.frames(2);
        const ImGuiWindow* window = desktop.window_of(panel->id);
        REQUIRE(window);
        CHECK(window->Active);
        CHECK(GImGui->ErrorCountCurrentFrame == 0);
      }
    }
    desktop.shell().commands().invoke("view.theme");
    desktop.frames(2);
  }
}

TEST_CASE("an edit is predicted, undone with Ctrl+Z and redone with Ctrl+Y") {
  NullDesktop desktop;
  auto& document = desktop.shell().document();
  const sim::Scenario before = document.scenario();
  sim::Scenario after = before;
  after.workload.micro_batch_size = 2;
  document.edit("micro-batch 4 to 2", after);
  desktop.settle();
  CHECK(document.undo_label() == "micro-batch 4 to 2");
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Z);
  CHECK(document.scenario() == before);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Y);
  CHECK(document.scenario() == after);
}

TEST_CASE("a click on a stepper of Configure edits the scenario, one undo step a gesture") {
  NullDesktop desktop;
  auto& document = desktop.shell().document();
  const std::int64_t layers = document.scenario().model.num_hidden_layers;
  // The plus of "layers": its id is what the form pushed, its place what ImGui says when it is focused.
  const ImGuiWindow* panel = desktop.window_of("scenario");
  REQUIRE(panel);
  ImGuiWindow* body = tests::body_of(panel);
  REQUIRE(body);
  const auto id = [&](std::initializer_list<const char*> path) {
    ImGuiID seed = body->ID;
    for (const char* part : path) seed = ImHashStr(part, 0, seed);
    return seed;
  };
  const auto activate = [&](ImGuiID item) {
    ImGui::SetWindowFocus(panel->Name);
    desktop.frames(1);
    GImGui->NavActivateId = 0;
    ImGui::ActivateItemByID(item);
    desktop.frames(2);
  };
  CHECK_FALSE(desktop.says("layers"));
  activate(id({"model", "MODEL", "fold"}));
  CHECK(desktop.says("layers"));
  activate(id({"model", "layers", "##more"}));
  CHECK(document.scenario().model.num_hidden_layers == layers + 1);
  CHECK(std::string(document.undo_label()).find("layers") == 0);
  document.undo();
  CHECK(document.scenario().model.num_hidden_layers == layers);
}

TEST_CASE("the palette finds a model by words of its name and Enter picks it") {
  NullDesktop desktop;
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_K);
  desktop.frames(2);
  desktop.type("llama-3.1-8b");
  desktop.press(ImGuiKey_Enter);
  desktop.settle();
  CHECK(desktop.shell().document().scenario().model.name == "llama-3.1-8b");
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Z);
  CHECK(desktop.shell().document().scenario().model.name == "gpt2-124m");
}

TEST_CASE("F8 switches the theme, Ctrl+plus the scale, F1 shows the shortcuts") {
  NullDesktop desktop;
  REQUIRE(desktop.shell().look().theme == app::Theme::dark);
  desktop.press(ImGuiKey_F8);
  CHECK(desktop.shell().look().theme == app::Theme::light);
  const float scale = desktop.shell().look().scale;
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Equal);
  CHECK(desktop.shell().look().scale > scale);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_0);
  CHECK(desktop.shell().look().scale == scale);
  desktop.press(ImGuiKey_F1);
  CHECK(popups() == 1);
}

TEST_CASE("the palette and the sheet of shortcuts close: by Escape, by a click outside, by each other") {
  NullDesktop desktop;
  const ImVec2 outside = {6, 900};
  for (const ImGuiKeyChord opens : {ImGuiMod_Ctrl | ImGuiKey_K, static_cast<int>(ImGuiKey_F1)}) {
    desktop.press(opens);
    REQUIRE(popups() == 1);
    desktop.press(ImGuiKey_Escape);
    desktop.frames(4);
    CHECK(popups() == 0);
    desktop.press(opens);
    REQUIRE(popups() == 1);
    desktop.click(outside);
    desktop.frames(4);
    CHECK(popups() == 0);
  }
  desktop.press(ImGuiKey_F1);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_K);
  CHECK(popups() == 1);
  desktop.type("theme");
  desktop.press(ImGuiKey_Escape);
  desktop.frames(4);
  CHECK(popups() == 0);
  // The mouse and the keys reach what is below.
  desktop.press(ImGuiKey_F8);
  CHECK(desktop.shell().look().theme == app::Theme::light);
}

TEST_CASE("the roofline's axes follow the scenario, and leave the user's zoom while the roof is in sight") {
  NullDesktop desktop;
  const auto limits = [] {
    for (int i = 0; i < GImPlot->Plots.GetBufSize(); ++i) {
      const ImPlotPlot& plot = *GImPlot->Plots.GetByIndex(i);
      if (plot.XAxis(0).LabelOffset >= 0 &&
          std::string_view(plot.GetAxisLabel(plot.XAxis(0))).starts_with("FLOP per byte"))
        return plot.YAxis(0).Range;
    }
    return ImPlotRange();
  };
  const double peak_before = limits().Max;
  sim::Scenario next = desktop.shell().document().scenario();
  next.hardware = sim::load_hardware_preset("v100-sxm");
  next.workload.dtype = sim::DType::fp16;
  desktop.shell().document().edit("another device", next);
  desktop.settle();
  desktop.frames(3);
  CHECK(limits().Max != peak_before);
  CHECK(limits().Contains(next.hardware.peak_for(sim::DType::fp16).value));
}

TEST_CASE("a scenario that cannot be is drawn with its reason, and the next that can is predicted") {
  NullDesktop desktop;
  sim::Scenario wrong = desktop.shell().document().scenario();
  wrong.model.num_key_value_heads = 5;
  desktop.shell().document().edit("KV heads 12 to 5", wrong);
  desktop.settle();
  const std::vector<sim::Problem> problems = sim::validate(wrong);
  REQUIRE_FALSE(problems.empty());
  const std::string drawn = unwrapped(desktop.words());
  CHECK_THAT(drawn, contains("This cannot be"));
  CHECK_THAT(drawn, contains(app::gui::in_labels(problems.front())));
  CHECK_THAT(drawn, contains("no prediction"));
  desktop.shell().document().undo();
  desktop.settle();
  const std::string next = unwrapped(desktop.words());
  CHECK_THAT(next, !contains("This cannot be"));
  CHECK_THAT(next, contains("4,096 tokens a step"));
}

TEST_CASE(
    "a measurement of this machine that fails says why where it was asked for, and can be asked for again") {
  sim::Scenario unmeasured = tests::small_scenario();
  unmeasured.hardware = {};
  unmeasured.hardware.name = sim::kThisMachine;
  NullDesktop desktop(unmeasured);  // whose program to run is none
  app::gui::Commands& commands = desktop.shell().commands();
  CHECK(desktop.says("This machine has not been measured yet"));
  // Measuring is offered; that it was not is no problem of the scenario.
  CHECK_FALSE(desktop.says("problem"));
  CHECK_FALSE(desktop.says("Make it legal"));
  CHECK_FALSE(desktop.says("The last attempt failed"));
  REQUIRE(commands.invoke("run.calibrate"));
  CHECK_FALSE(is_enabled(*commands.find("run.calibrate")));
  desktop.settle_studies();
  CHECK(desktop.says("The last attempt failed"));
  CHECK(is_enabled(*commands.find("run.calibrate")));
}

TEST_CASE(
    "a run whose program cannot be started is a message in its panel, and the next one can be started") {
  NullDesktop desktop;
  app::gui::Runs& runs = desktop.shell().runs();
  REQUIRE(desktop.shell().commands().invoke("run.start"));
  while (runs.active()) desktop.frame();
  desktop.frame();
  const app::gui::RunView& run = runs.of(sim::Task::train);
  CHECK(run.phase == app::gui::RunPhase::failed);
  CHECK_FALSE(run.message.empty());
  desktop.shell().commands().invoke("maximise.live");
  CHECK(desktop.says(run.message.substr(0, 20)));
  CHECK(is_enabled(*desktop.shell().commands().find("run.start")));
}

TEST_CASE("ten thousand frames of random input leave no interface error behind") {
  NullDesktop desktop;
  sim::Report measured = sim::predict(tests::small_scenario());
  measured.source.kind = sim::ReportKind::measured;
  desktop.shell().show_measured(measured);
  std::mt19937 random(20261121);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  // Runs are other tests' business: the keys that start one are left out, and the program to run is none.
  const std::array<ImGuiKey, 17> keys = {
      ImGuiKey_Tab,       ImGuiKey_Enter, ImGuiKey_Escape, ImGuiKey_Space, ImGuiKey_LeftArrow,
      ImGuiKey_DownArrow, ImGuiKey_A,     ImGuiKey_Z,      ImGuiKey_Y,     ImGuiKey_K,
      ImGuiKey_1,         ImGuiKey_3,     ImGuiKey_6,      ImGuiKey_T,     ImGuiKey_Equal,
      ImGuiKey_Backspace, ImGuiKey_W};
  ImGuiIO& io = ImGui::GetIO();
  int errors = 0;
  for (int event = 0; event < 10000; ++event) {
    switch (below(6)) {
      case 0:
      case 1:
        io.AddMousePosEvent(static_cast<float>(below(1600)), static_cast<float>(below(1000)));
        break;
      case 2:
        io.AddMouseButtonEvent(below(4) == 0 ? 1 : 0, below(2) == 0);
        break;
      case 3:
        io.AddMouseWheelEvent(0, static_cast<float>(below(7) - 3));
        break;
      case 4:
        io.AddKeyEvent(ImGuiMod_Ctrl, below(2) == 0);
        io.AddKeyEvent(keys[static_cast<std::size_t>(below(17))], below(2) == 0);
        break;
      case 5:
        io.AddInputCharacter(static_cast<unsigned>('0' + below(10)));
        break;
    }
    desktop.frame();
    errors += GImGui->ErrorCountCurrentFrame;
  }
  CHECK(errors == 0);
}

TEST_CASE("the palette lists what says the words before what has them in its id alone") {
  NullDesktop desktop;
  const auto found = desktop.shell().commands().search("maximise compare");
  REQUIRE(found.size() > 1);
  CHECK(found.front()->label == "Maximise Compare");
}

TEST_CASE("the palette knows fields: their words as commands, their numbers typed behind their names") {
  NullDesktop desktop;
  const auto ask = [&](const char* words) {
    desktop.press(ImGuiMod_Ctrl | ImGuiKey_K);
    desktop.type(words);
    desktop.press(ImGuiKey_Enter);
    desktop.settle();
  };
  const sim::Scenario before = desktop.shell().document().scenario();
  ask("recompute full");
  sim::Scenario expected = before;
  expected.strategy.recompute = sim::Recompute::full;
  CHECK(desktop.shell().document().scenario() == expected);
  ask("sequence 2k");
  expected.workload.seq_len = 2048;
  CHECK(desktop.shell().document().scenario() == expected);
  // What is no value says what would be one.
  ask("sequence many");
  CHECK(desktop.shell().document().scenario() == expected);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Z);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Z);
  CHECK(desktop.shell().document().scenario() == before);
}
