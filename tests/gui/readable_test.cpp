// What is written can be read: no text is cut off, none lies on another.
#include <array>
#include <random>
#include <regex>

#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/plan/legality.h"
#include "tests/gui/drawn_text.h"
#include "tests/gui/null_desktop.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

constexpr std::array<ImVec2, 3> kSizes = {ImVec2(1280, 720), ImVec2(1920, 1080), ImVec2(2560, 1440)};
constexpr std::array<float, 4> kScales = {1.0f, 1.25f, 1.5f, 2.0f};

void check_text() {
  for (const std::string& words : tests::unreadable_text()) FAIL_CHECK(words);
}

}  // namespace

TEST_CASE("text that passes its window's edge, or lies on other text, is found, text beside it is not") {
  tests::NullDesktop desktop;
  const ImVec2 second = GENERATE(ImVec2(0, 30), ImVec2(6, 4), ImVec2(170, 30));
  ImGui_ImplNull_NewFrame();
  ImGui::NewFrame();
  ImGui::SetNextWindowPos({10, 10});
  ImGui::SetNextWindowSize({220, 120});
  ImGui::Begin("planted", nullptr, ImGuiWindowFlags_NoDecoration);
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  ImGui::GetWindowDrawList()->AddText(begin, IM_COL32_WHITE, "predicted");
  ImGui::GetWindowDrawList()->AddText({begin.x + second.x, begin.y + second.y}, IM_COL32_WHITE, "measured");
  ImGui::End();
  ImGui::Render();
  CHECK(tests::unreadable_text().empty() == (second.x == 0));
}

TEST_CASE("no text of any panel is cut off or lies on another, at three sizes and four scales") {
  const char* preset =
      GENERATE("train-llama-3.1-8b-8-h100", "train-llama-3.1-405b-16384-h100", "chat-llama-3.1-8b-h100");
  tests::NullDesktop desktop(sim::load_scenario_preset(preset), kSizes[0]);
  for (const float scale : kScales)
    for (const ImVec2 size : kSizes) {
      desktop.resize(size);
      desktop.shell().set_display_scale(scale);
      desktop.frames(3);
      std::vector<std::string> views = {""};
      // Room in points alone tells: others are between these.
      if (size.x == kSizes[0].x || scale == kScales.front() || scale == kScales.back())
        for (const PanelEntry* panel : panels()) views.emplace_back(panel->id);
      for (const std::string& view : views) {
        desktop.shell().view().maximised = view;
        desktop.settle_studies();
        CAPTURE(preset, scale, size.x, view);
        CHECK(tests::drawn_glyphs().size() > 30);
        check_text();
      }
    }
}

TEST_CASE("the throughput's tile says its whole number, at three sizes and four scales") {
  const char* preset =
      GENERATE("train-llama-3.1-8b-8-h100", "train-llama-3.1-405b-16384-h100", "chat-llama-3.1-8b-h100");
  tests::NullDesktop desktop(sim::load_scenario_preset(preset), kSizes[1]);
  const std::string wide = desktop.words();
  std::smatch number;
  REQUIRE(std::regex_search(wide, number, std::regex("Throughput\\s+([0-9][0-9,.]*)")));
  const std::string whole = number[1];
  std::string digits = whole;
  std::erase(digits, ',');
  const std::string rounded = sim::format_short(std::stod(digits));
  for (const float scale : kScales)
    for (const ImVec2 size : kSizes) {
      desktop.resize(size);
      desktop.shell().set_display_scale(scale);
      desktop.settle();
      CAPTURE(preset, scale, size.x, whole, rounded);
      CHECK((desktop.says(whole) || desktop.says(rounded)));
    }
}

TEST_CASE("the words below the map of ranks are whole where its cells fill the room") {
  const unsigned seed = GENERATE(21u, 35u, 55u);  // 2, 3 and 6 nodes of 8
  tests::NullDesktop desktop(tests::small_scenario(), kSizes[0]);
  desktop.shell().set_display_scale(1.5f);
  sim::Scenario s = test::random_parallel_scenario(seed);
  s.hardware = sim::load_hardware_preset("h100-sxm");
  desktop.shell().document().edit("random", s);
  desktop.shell().view().maximised = "communication";
  desktop.settle();
  CHECK(desktop.says(" is a node"));
  desktop.frame();
  CAPTURE(seed);
  check_text();
}

TEST_CASE("what offers runs of this machine is not cut off in a sweep's panel, however narrow") {
  // The program is there, so that runs are offered; none is started.
  tests::NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-8b-8-h100"), kSizes[0], {},
                             "/bin/true");
  desktop.shell().commands().invoke("panel.sweep");
  for (const ImVec2 size : {kSizes[0], ImVec2(1600, 1000), kSizes[1]}) {
    desktop.resize(size);
    desktop.settle_studies();
    CAPTURE(size.x);
    CHECK(desktop.says("Measure here"));
    desktop.frame();
    check_text();
  }
}

TEST_CASE("no text is cut off or lies on another, of 300 random scenarios at random sizes") {
  tests::NullDesktop desktop(tests::small_scenario(), kSizes[0]);
  Shell& shell = desktop.shell();
  const sim::Hardware hardware = sim::load_hardware_preset("h100-sxm");
  std::mt19937 random(20);
  int shown = 0;
  for (unsigned seed = 0; shown < 300 && seed < 1500; ++seed) {
    sim::Scenario s = seed % 2 == 0 ? test::random_scenario(seed) : test::random_parallel_scenario(seed);
    s.hardware = hardware;
    if (!sim::validate(s).empty()) continue;
    ++shown;
    shell.document().edit("random", s);
    const ImVec2 size = kSizes[random() % kSizes.size()];
    // One after the other: every change of the scale makes all glyphs anew.
    const float scale = kScales[static_cast<std::size_t>(shown - 1) * kScales.size() / 300];
    const std::size_t panel = random() % (2 * panels().size());
    shell.view().maximised = panel < panels().size() ? panels()[panel]->id : "";
    desktop.resize(size);
    shell.set_display_scale(scale);
    // Studies of what is seen, of some: they take longer than all else.
    if (shown % 10 == 0)
      desktop.settle_studies();
    else
      desktop.settle();
    CAPTURE(seed, scale, size.x, shell.view().maximised);
    check_text();
  }
  CHECK(shown == 300);
}

// The law above in full, half an hour of it: test_gui "[whole-law]".
TEST_CASE(
    "no text is cut off or lies on another, of 300 random scenarios in every panel, at three sizes and four "
    "scales, after any resizes",
    "[.][whole-law]") {
  const float scale = GENERATE(1.0f, 1.25f, 1.5f, 2.0f);
  tests::NullDesktop desktop(tests::small_scenario(), kSizes[0]);
  Shell& shell = desktop.shell();
  shell.set_display_scale(scale);
  const sim::Hardware hardware = sim::load_hardware_preset("h100-sxm");
  std::mt19937 random(static_cast<unsigned>(scale * 100));
  const auto between = [&](int least, int most) {
    return static_cast<float>(least + static_cast<int>(random() % static_cast<unsigned>(most - least)));
  };
  int shown = 0;
  for (unsigned seed = 0; shown < 300 && seed < 1500; ++seed) {
    sim::Scenario s = seed % 2 == 0 ? test::random_scenario(seed) : test::random_parallel_scenario(seed);
    s.hardware = hardware;
    if (!sim::validate(s).empty()) continue;
    ++shown;
    shell.document().edit("random", s);
    desktop.settle();
    for (const ImVec2 size : kSizes) {
      shell.view().maximised = "";
      for (int i = 0; i < 2; ++i) {
        desktop.resize({between(1000, 2800), between(640, 1600)});
        desktop.frames(2);
      }
      desktop.resize(size);
      std::vector<std::string> views = {""};
      for (const PanelEntry* panel : panels()) views.emplace_back(panel->id);
      for (const std::string& view : views) {
        shell.view().maximised = view;
        // Studies take longer than all else.
        if (shown % 20 == 0)
          desktop.settle_studies();
        else
          desktop.settle();
        CAPTURE(seed, scale, size.x, view);
        check_text();
      }
    }
  }
  CHECK(shown == 300);
}

TEST_CASE(
    "no line of a run's messages is cut, whatever the height and type: rooms that scroll hold whole lines") {
  sim::Report run = sim::predict(tests::small_scenario());
  run.source.kind = sim::ReportKind::measured;
  run.source.slowdown.arithmetic = 2.47;  // a message of its own
  for (int i = 1; i <= 20; ++i) run.steps.push_back({i, 5.0 / i, 1.0, sim::Seconds{0.5}, 4096});
  tests::NullDesktop desktop;
  desktop.shell().view().maximised = "live";
  desktop.shell().show_measured(run);
  desktop.settle();
  int lines = 0;
  for (const float scale : kScales)
    for (float height = 520; height < 1100; height += 37) {
      desktop.shell().set_display_scale(scale);
      desktop.resize({1200 * scale, height * scale});
      desktop.frames(4);
      CAPTURE(scale, height);
      const auto glyphs = tests::drawn_glyphs();
      for (std::size_t i = 0; i < glyphs.size(); ++i) {
        if (!glyphs[i].window || std::string_view(glyphs[i].window->Name).find("/log_") == std::string::npos)
          continue;
        ++lines;
        if (glyphs[i].cut_at_ends() > 1.01f) FAIL_CHECK(tests::words_around(glyphs, i));
      }
    }
  CHECK(lines > 1000);
}
