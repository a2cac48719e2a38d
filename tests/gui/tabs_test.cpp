// Several scenarios beside each other.
#include "app/gui/tabs.h"

#include <fstream>

#include "app/gui/opened_file.h"
#include "sim/cost/predict.h"
#include "tests/gui/drawn_text.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace app::gui;
using tests::NullDesktop;

namespace {

constexpr ImGuiKeyChord kNew = ImGuiMod_Ctrl | ImGuiKey_T, kClose = ImGuiMod_Ctrl | ImGuiKey_W,
                        kNext = ImGuiMod_Ctrl | ImGuiKey_Tab,
                        kPrevious = ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_Tab,
                        kReopen = ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_T;

sim::Scenario with_layers(std::int64_t layers) {
  sim::Scenario scenario = tests::small_scenario();
  scenario.model.num_hidden_layers = layers;
  return scenario;
}

}  // namespace

TEST_CASE("each tab has its scenario, its history and its pins: Ctrl+T, Ctrl+Tab, Ctrl+W, Ctrl+Shift+T") {
  NullDesktop desktop;
  Shell& shell = desktop.shell();
  shell.document().edit("thirteen", with_layers(13));
  desktop.settle();
  desktop.press(ImGuiKey_P);
  REQUIRE(shell.pins().all().size() == 1);

  desktop.press(kNew);
  REQUIRE(shell.tabs().count() == 2);
  CHECK(shell.document().scenario() == tests::small_scenario());
  CHECK_FALSE(shell.document().can_undo());
  CHECK(shell.pins().all().empty());
  shell.document().edit("seven", with_layers(7));
  desktop.settle();

  desktop.press(kNext);
  CHECK(shell.document().undo_label() == "thirteen");
  CHECK(shell.pins().all().size() == 1);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Z);
  CHECK(shell.document().scenario() == tests::small_scenario());
  desktop.press(kPrevious);
  CHECK(shell.document().scenario() == with_layers(7));

  desktop.press(kClose);
  REQUIRE(shell.tabs().count() == 1);
  CHECK(shell.document().redo_label() == "thirteen");
  desktop.press(kClose);  // the last one stays
  CHECK(shell.tabs().count() == 1);
  desktop.press(kReopen);
  REQUIRE(shell.tabs().count() == 2);
  CHECK(shell.document().undo_label() == "seven");
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_1);
  CHECK(shell.tabs().index() == 0);
  CHECK(GImGui->ErrorCountCurrentFrame == 0);
}

TEST_CASE("a tab that cannot be leaves its own last figures on screen, and none of another tab") {
  NullDesktop desktop;
  Shell& shell = desktop.shell();
  sim::Scenario impossible = with_layers(12);
  impossible.workload.global_batch_size = 3;
  impossible.workload.micro_batch_size = 2;
  shell.document().edit("impossible", impossible);
  desktop.settle();
  CHECK(desktop.says("figures are of the last scenario that could be"));
  desktop.press(kNew);
  desktop.settle();
  CHECK_FALSE(desktop.says("figures are of the last scenario that could be"));
  shell.document().edit("sixteen", with_layers(16));
  desktop.settle();
  desktop.press(kNext);
  desktop.settle();
  CHECK(desktop.says("figures are of the last scenario that could be"));
  CHECK(shell.tabs().current().legal->scenario == with_layers(12));
}

TEST_CASE("the row of tabs names scenarios apart, and a click shows one, its cross closes it") {
  const ImVec2 size = GENERATE(ImVec2{1280, 720}, ImVec2{1920, 1080});
  const float scale = GENERATE(1.0f, 2.0f);
  NullDesktop desktop(tests::small_scenario(), size);
  desktop.shell().set_display_scale(scale);
  Shell& shell = desktop.shell();
  CHECK_FALSE(desktop.says("layers 12"));
  for (std::size_t i = 1; i < Tabs::kMost; ++i) {
    desktop.press(kNew);
    shell.document().edit("more", with_layers(12 + static_cast<std::int64_t>(i)));
  }
  desktop.settle();
  CHECK(shell.tabs().name(0) == "gpt2-124m, h100-sxm");
  CHECK(shell.tabs().name(3) == "gpt2-124m: layers 12 \u2192 15");
  desktop.press(kNew);
  CHECK(shell.tabs().count() == Tabs::kMost);
  desktop.frames(2);
  for (const std::string& problem : tests::unreadable_text())
    if (problem.find("##host") != std::string::npos) FAIL_CHECK(problem);
  // Rows are below the bar of 50 points.
  const float y = (50 + 18) * scale, left = 30 * scale;
  desktop.click({left, y});
  CHECK(shell.tabs().index() == 0);
  const float width = (size.x - (16 + 30) * scale) / Tabs::kMost;
  desktop.click({8 * scale + width - (4 + 10) * scale, y});
  CHECK(shell.tabs().count() == Tabs::kMost - 1);
  CHECK(shell.document().scenario() == with_layers(13));
}

TEST_CASE("a tab is moved by its keys and by a drag, and goes on being the one that is shown") {
  NullDesktop desktop;
  Shell& shell = desktop.shell();
  for (int i = 0; i < 3; ++i) {
    desktop.press(kNew);
    shell.document().edit("more", with_layers(20 + i));
  }
  const auto layers = [&] {
    std::vector<std::int64_t> all;
    for (std::size_t i = 0; i < shell.tabs().count(); ++i)
      all.push_back(shell.tabs().at(i).document.scenario().model.num_hidden_layers);
    return all;
  };
  using Order = std::vector<std::int64_t>;
  CHECK(layers() == Order{12, 20, 21, 22});
  desktop.press(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_PageUp);
  CHECK(layers() == Order{12, 20, 22, 21});
  CHECK(shell.document().scenario() == with_layers(22));
  desktop.press(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_PageDown);
  desktop.press(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_PageDown);  // at the end it stays
  CHECK(layers() == Order{12, 20, 21, 22});
  // From the first place to the third: tabs are 260 points wide.
  ImGuiIO& io = ImGui::GetIO();
  io.AddMousePosEvent(60, 68);
  desktop.frames(2);
  io.AddMouseButtonEvent(0, true);
  desktop.frames(2);
  for (const float x : {120.0f, 300.0f, 580.0f}) {
    io.AddMousePosEvent(x, 68);
    desktop.frames(3);
  }
  io.AddMouseButtonEvent(0, false);
  desktop.frames(3);
  CHECK(layers() == Order{20, 21, 12, 22});
  CHECK(shell.tabs().index() == 2);
  CHECK(shell.document().scenario() == with_layers(12));
}

TEST_CASE("a session keeps its tabs with histories and pins, and a damaged one costs nothing but itself") {
  const TemporaryFolder folder;
  Settings kept;
  {
    NullDesktop desktop;
    Shell& shell = desktop.shell();
    shell.document().edit("thirteen", with_layers(13));
    desktop.settle();
    desktop.press(ImGuiKey_P);
    shell.document().edit("fourteen", with_layers(14));
    shell.document().undo();
    sim::Report run = sim::predict(with_layers(13));
    run.source.kind = sim::ReportKind::measured;
    shell.pins().add(std::make_shared<const sim::Report>(run));
    shell.pins().make_baseline(1);
    desktop.press(kNew);
    shell.document().edit("seven", with_layers(7));
    kept = shell.settings();
  }
  save_settings(kept, folder.path());
  {
    NullDesktop desktop(with_layers(2), {1600, 1000}, load_settings(folder.path()));
    Shell& shell = desktop.shell();
    REQUIRE(shell.tabs().count() == 2);
    CHECK(shell.tabs().index() == 1);
    CHECK(shell.document().scenario() == with_layers(7));
    CHECK(shell.document().undo_label() == "seven");
    desktop.press(kNext);
    CHECK(shell.document().scenario() == with_layers(13));
    CHECK(shell.document().undo_label() == "thirteen");
    CHECK(shell.document().redo_label() == "fourteen");
    REQUIRE(shell.pins().all().size() == 2);
    CHECK(shell.pins().baseline()->letter == 'B');
    CHECK(shell.pins().baseline()->measured());
    CHECK(shell.pins().all()[0].scenario() == with_layers(13));
  }
  std::ifstream in(folder.path() / "desktop.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  in.close();
  const std::size_t first = text.find("\"num_hidden_layers\": 7");
  REQUIRE(first != std::string::npos);
  text.replace(first, 22, "\"layers_of_another_version\": 7");
  std::ofstream(folder.path() / "desktop.json") << text;
  const Settings damaged = load_settings(folder.path());
  REQUIRE(damaged.tabs.size() == 1);
  CHECK(damaged.tabs[0].scenario == with_layers(13));
  CHECK(damaged.tab == 0);
  CHECK(std::filesystem::exists(folder.path() / "desktop.json.set-aside"));
}

TEST_CASE("a file opens in a tab of its own where something would be lost, and once") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "mine.json";
  save_scenario(with_layers(20), file);
  NullDesktop desktop;
  Shell& shell = desktop.shell();
  shell.document().edit("thirteen", with_layers(13));
  shell.open(file);
  REQUIRE(shell.tabs().count() == 2);
  CHECK(shell.document().scenario() == with_layers(20));
  CHECK(shell.tabs().name(1) == "mine");
  desktop.press(kNext);
  CHECK(shell.document().scenario() == with_layers(13));
  shell.open(file);
  CHECK(shell.tabs().count() == 2);
  CHECK(shell.tabs().index() == 1);
}
