// The lessons panel, as a hand drives it.
#include "app/gui/panels/lessons.h"

#include <fstream>

#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace app::gui;

namespace {

constexpr const char* kLesson = R"(---
title: A small lesson
chapter: 1 Beginning
minutes: 1
systems: 2
scenario: train-llama-3.1-8b-h100
---

## The first step

It has {layers|count} layers.

:set workload.seq_len=1024
:ask How many devices are there?
:answer devices
:choice 1
:choice 8
:because One is enough to begin with.
:take Remember this line.

## The second step

:set strategy.recompute=full
:goal It is fast if mfu >= 99 %
:hint Nothing helps.
)";

struct Opened {
  TemporaryFolder folder;
  std::filesystem::path file = folder.path() / "small.md";
  tests::NullDesktop desktop;
  explicit Opened(app::gui::Settings settings = {})
      : desktop(tests::small_scenario(), {1900, 1000}, std::move(settings)) {
    std::ofstream(file) << kLesson;
    desktop.shell().open(file);
    desktop.settle_studies();
    desktop.settle_studies();
  }
};

}  // namespace

TEST_CASE(
    "a lesson that is opened makes its scenario the desktop's, as one undo step, and shows its numbers") {
  Opened opened;
  CHECK(opened.desktop.shell().document().scenario().model.name == "llama-3.1-8b");
  CHECK(opened.desktop.shell().document().scenario().workload.seq_len == 1024);
  CHECK(opened.desktop.says("The first step"));
  CHECK(opened.desktop.says("32"));
  opened.desktop.shell().document().undo();
  CHECK(opened.desktop.shell().document().scenario() == tests::small_scenario());
}

TEST_CASE("what stands behind a question shows once it is answered, and the answer stays") {
  Opened opened;
  CHECK(opened.desktop.says("How many devices are there?"));
  CHECK_FALSE(opened.desktop.says("Remember this line."));
  CHECK_FALSE(opened.desktop.says("One is enough"));
  auto& state = opened.desktop.state<LessonsState>();
  REQUIRE(state.progress.answers.size() == 1);
  state.progress.answers.begin()->second = {"0", true};
  CHECK(opened.desktop.says("Right: 1"));
  CHECK(opened.desktop.says("Remember this line."));
  state.progress.answers.begin()->second = {"1", true};
  CHECK(opened.desktop.says("The answer is 1"));
}

TEST_CASE("the next step changes the scenario, and the step before gives it back") {
  Opened opened;
  auto& state = opened.desktop.state<LessonsState>();
  opened.desktop.press(ImGuiKey_PageDown);
  opened.desktop.settle_studies();
  opened.desktop.settle_studies();
  CHECK(state.step == 1);
  CHECK(opened.desktop.shell().document().scenario().strategy.recompute == sim::Recompute::full);
  CHECK(opened.desktop.says("It is fast"));
  opened.desktop.press(ImGuiKey_PageUp);
  opened.desktop.settle_studies();
  opened.desktop.settle_studies();
  CHECK(state.step == 0);
  CHECK(opened.desktop.shell().document().scenario().strategy.recompute == sim::Recompute::none);
}

TEST_CASE("a lesson that is written while it is open shows what is new, and what is wrong in its place") {
  Opened opened;
  auto& state = opened.desktop.state<LessonsState>();
  const auto write = [&](const std::string& text) {
    std::ofstream(opened.file) << text;
    std::filesystem::last_write_time(opened.file,
                                     std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
    state.next_look = {};
    opened.desktop.settle_studies();
    opened.desktop.settle_studies();
  };
  std::string changed = kLesson;
  changed.replace(changed.find("The first step"), 14, "Another title.");
  write(changed);
  CHECK(opened.desktop.says("Another title."));
  write("nothing of a lesson");
  CHECK(opened.desktop.says("small.md:1: begins with a line ---"));
}

TEST_CASE("progress and answers are kept between starts, and a file that is none costs nothing") {
  const TemporaryFolder folder;
  LessonProgress progress;
  progress.steps["a"] = 3;
  progress.answers["a/0/1"] = {"42", true};
  progress.answers["a/1/1"] = {"not yet", false};
  save_lesson_progress(progress, folder.path());
  const LessonProgress again = load_lesson_progress(folder.path());
  CHECK(again.steps.at("a") == 3);
  CHECK(again.answers.at("a/0/1").text == "42");
  CHECK(again.answers.at("a/0/1").locked);
  CHECK(again.answers.count("a/1/1") == 0);
  std::ofstream(folder.path() / "lessons.json") << "[1, 2";
  CHECK(load_lesson_progress(folder.path()).steps.empty());
}

TEST_CASE("a class's folder stands beside our lessons, and what is written to it later shows, too") {
  const TemporaryFolder folder;
  tests::NullDesktop desktop(tests::small_scenario(), {1900, 1000});
  auto& state = desktop.state<LessonsState>();
  state.reload();
  const std::size_t ours = state.entries.size();
  std::ofstream(folder.path() / "small.md") << kLesson;
  state.add_folder(folder.path());
  state.reload();
  CHECK(state.entries.size() == ours + 1);
  std::ofstream(folder.path() / "wrong.md") << "nothing of a lesson";
  state.next_look = {};
  state.reload();
  REQUIRE(state.entries.size() == ours + 2);
  CHECK_THAT(state.entries.front().problem, contains("wrong.md:1: begins with a line ---"));
}
