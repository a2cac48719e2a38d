// Lectures: the presenter's mode goes on where each was left.
#include "app/gui/lectures.h"

#include <fstream>
#include <iterator>

#include "app/gui/panels/lessons.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace app::gui;
namespace lesson = app::lesson;

namespace {

// A lecturer's window, from its start on.
class Session {
 public:
  explicit Session(Settings settings = {})
      : desktop_(tests::small_scenario(), {1600, 1000}, std::move(settings)) {}

  void in_palette(const std::string& words) {
    desktop_.press(ImGuiMod_Ctrl | ImGuiKey_K);
    desktop_.type(words.c_str());
    press(ImGuiKey_Enter);
  }
  void open(const std::string& lesson) { in_palette("open lesson " + lesson); }
  // Until a step that it leads to has its scenario, and its numbers.
  void press(ImGuiKeyChord chord) {
    desktop_.press(chord);
    desktop_.settle_studies();
    desktop_.settle_studies();
  }
  void close_into(const std::filesystem::path& folder) { save_settings(shell().settings(), folder); }

  Shell& shell() { return desktop_.shell(); }
  LessonsState& lessons() { return desktop_.state<LessonsState>(); }
  bool says(const std::string& words) { return desktop_.says(words); }
  std::string lecture() { return lessons().open_now() ? lessons().open_now()->id : ""; }
  const std::string& large() { return shell().view().maximised; }
  const sim::Scenario& scenario() { return shell().document().scenario(); }
  sim::Scenario own_scenario(std::size_t step) { return lesson::scenario_at(*lessons().open_now(), step); }

 private:
  tests::NullDesktop desktop_;
};

}  // namespace

TEST_CASE(
    "a lecture goes on at the step where it was left, after another lecture and in a later session, and says "
    "so") {
  const TemporaryFolder folder;
  {
    Session session;
    session.open("generation");
    session.press(ImGuiKey_F11);
    CHECK(session.lessons().step == 0);
    CHECK_FALSE(session.says("Goes on at"));
    session.press(ImGuiKey_RightArrow);
    session.press(ImGuiKey_RightArrow);
    session.press(ImGuiKey_Escape);
    session.open("complexity");
    session.press(ImGuiKey_F11);
    CHECK(session.lessons().step == 0);
    session.press(ImGuiKey_RightArrow);
    // The one lecture is opened out of the other.
    session.open("generation");
    CHECK(session.large() == "lessons");
    CHECK(session.lecture() == "generation");
    CHECK(session.lessons().step == 2);
    CHECK(session.says("Goes on at step 3 of 4. Home begins anew."));
    session.close_into(folder.path());
  }
  Session session(load_settings(folder.path()));
  CHECK(session.large().empty());
  session.open("complexity");
  REQUIRE(session.lessons().step == 0);
  session.press(ImGuiKey_F11);
  CHECK(session.lessons().step == 1);
  CHECK(session.says("Goes on at step 2 of"));
  CHECK(session.scenario() == session.own_scenario(1));
  session.press(ImGuiKey_Escape);
  session.open("generation");
  session.press(ImGuiKey_F11);
  CHECK(session.lessons().step == 2);
  session.press(ImGuiKey_Home);
  CHECK(session.lessons().step == 0);
  CHECK(session.scenario() == session.own_scenario(0));
  CHECK(session.shell().settings().lectures.at("generation").step == 0);
  CHECK(session.shell().settings().lectures.at("complexity").step == 1);
}

TEST_CASE(
    "a lecture that goes on has its step's own scenario, and one that is presented again what is seen") {
  Session session;
  session.open("generation");
  session.press(ImGuiKey_F11);
  session.press(ImGuiKey_RightArrow);
  session.press(ImGuiKey_Escape);
  session.in_palette("--prompt-length 77");
  REQUIRE(session.scenario().workload.prompt_length == 77);
  session.press(ImGuiKey_F11);  // shown to the room as it was edited
  CHECK(session.scenario().workload.prompt_length == 77);
  session.press(ImGuiKey_Escape);
  session.press(ImGuiKey_PageUp);
  session.press(ImGuiKey_F11);  // and at the step that was gone to by hand
  CHECK(session.lessons().step == 0);
  session.press(ImGuiKey_RightArrow);
  session.press(ImGuiKey_Escape);
  session.open("complexity");
  session.open("generation");
  session.in_palette("--prompt-length 77");
  session.press(ImGuiKey_F11);
  CHECK(session.lessons().step == 1);
  CHECK(session.scenario() == session.own_scenario(1));
}

TEST_CASE("each lecture has its panel and its size of type") {
  Session session;
  session.open("generation");
  session.press(ImGuiKey_F11);
  const float usual = session.shell().look().scale;
  session.press(ImGuiKey_RightArrow);
  session.press(ImGuiMod_Ctrl | ImGuiKey_Equal);
  session.press(ImGuiKey_3);
  CHECK(session.large() == "memory");
  const float larger = session.shell().look().scale;
  CHECK(larger > usual);
  session.press(ImGuiKey_Escape);
  CHECK(session.shell().look().scale == 1);
  session.open("complexity");
  session.press(ImGuiKey_F11);
  CHECK(session.large() == "lessons");
  CHECK(session.shell().look().scale == usual);
  session.press(ImGuiKey_Escape);
  session.open("generation");
  session.press(ImGuiKey_F11);
  CHECK(session.large() == "memory");
  CHECK(session.shell().look().scale == larger);
  CHECK(session.says("Goes on at step 2 of 4, Memory. Home begins anew."));
  CHECK(session.scenario() == session.own_scenario(1));
  session.press(ImGuiKey_Home);
  CHECK(session.large() == "lessons");
  CHECK(session.shell().look().scale == usual);
}

TEST_CASE(
    "without a lesson the panel that was presented last is the one to go on with, or one that is picked") {
  const TemporaryFolder folder;
  {
    Session session;
    session.press(ImGuiKey_3);
    session.press(ImGuiKey_F11);
    CHECK(session.large() == "memory");
    session.press(ImGuiKey_RightArrow);
    CHECK(session.large() == "roofline");
    session.close_into(folder.path());
  }
  Session session(load_settings(folder.path()));
  session.press(ImGuiKey_F11);
  CHECK(session.large() == "roofline");
  CHECK(session.says("Goes on at Roofline. Home begins anew."));
  session.press(ImGuiKey_Home);
  CHECK(session.large() == "overview");
  session.press(ImGuiKey_Escape);
  session.press(ImGuiKey_3);
  session.press(ImGuiKey_F11);
  CHECK(session.large() == "memory");
}

TEST_CASE("a lecture that begins anew asks its questions again, and other lessons keep their answers") {
  Session session;
  session.lessons().progress.answers["complexity/0/0"] = {"1", true};
  session.open("generation");
  session.press(ImGuiKey_F11);
  session.press(ImGuiKey_Enter);
  session.press(ImGuiKey_RightArrow);
  session.press(ImGuiKey_Enter);
  const auto locked = [&](const std::string& of) {
    return std::ranges::count_if(session.lessons().progress.answers, [&](const auto& answer) {
      return answer.first.starts_with(of) && answer.second.locked;
    });
  };
  REQUIRE(locked("generation/") == 2);
  session.press(ImGuiKey_Home);
  CHECK(locked("generation/") == 0);
  CHECK(locked("complexity/") == 1);
  CHECK(session.lessons().asks());
}

TEST_CASE("a lecture's place that is damaged is set aside, and costs the others nothing") {
  const TemporaryFolder folder;
  Settings settings;
  settings.lectures = {
      {"", {"roofline"}}, {"complexity", {"lessons", 1, 2.5f}}, {"generation", {"memory", 2}}};
  save_settings(settings, folder.path());
  CHECK(load_settings(folder.path()) == settings);
  const std::filesystem::path file = folder.path() / "desktop.json";
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  in.close();
  const std::size_t at = text.find("\"step\": 3");
  REQUIRE(at != std::string::npos);
  for (const std::string damaged : {"\"step\": 0", "\"step\":-3", "\"step\":\"\"", "\"stop\": 3"}) {
    CAPTURE(damaged);
    std::filesystem::remove(folder.path() / "desktop.json.set-aside");
    std::ofstream(file) << text.replace(at, damaged.size(), damaged);
    settings.lectures.erase("generation");
    CHECK(load_settings(folder.path()) == settings);
    CHECK(std::filesystem::exists(folder.path() / "desktop.json.set-aside"));
  }
  // A lesson that has become shorter, and a panel that is no more.
  settings.lectures = {{"generation", {"no such panel", 1000}}};
  Session session(settings);
  session.open("generation");
  session.press(ImGuiKey_F11);
  CHECK(session.large() == "lessons");
  CHECK(session.lessons().step == 3);
}
