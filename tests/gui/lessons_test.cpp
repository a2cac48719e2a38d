// The lessons panel, as a hand drives it.
#include "app/gui/panels/lessons.h"

#include <cmath>
#include <fstream>
#include <set>

#include "app/gui/panels/lessons_handout.h"
#include "app/gui/welcome.h"
#include "app/gui/widgets/text.h"
#include "tests/gui/drawn_text.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace app::gui;
namespace lesson = app::lesson;

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
:notes
Wait for {layers|count} seconds.
:end
:plot step_time over workload.seq_len from 1k to 4k
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

TEST_CASE(
    "a step that is reset has its scenario again and asks again, and the other steps keep their answers") {
  Opened opened;
  auto& state = opened.desktop.state<LessonsState>();
  state.progress.answers.begin()->second = {"0", true};
  state.progress.answers["small/1/0"] = {"0", true};
  Shell& shell = opened.desktop.shell();
  sim::Scenario changed = shell.document().scenario();
  changed.workload.seq_len = 512;
  shell.document().edit("shorter", changed);
  opened.desktop.settle_studies();
  REQUIRE(opened.desktop.says("Right: 1"));
  shell.commands().invoke("lesson.reset");
  opened.desktop.settle_studies();
  opened.desktop.settle_studies();
  CHECK(shell.document().scenario().workload.seq_len == 1024);
  CHECK_FALSE(opened.desktop.says("Right: 1"));
  CHECK_FALSE(opened.desktop.says("Remember this line."));
  CHECK(state.progress.answers.at("small/1/0").locked);
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

TEST_CASE(
    "presented, a lesson is walked through by arrows and on to the next of its chapter, in large type") {
  Opened opened;
  auto& state = opened.desktop.state<LessonsState>();
  std::ofstream(opened.folder.path() / "t_next.md") << kLesson;
  state.add_folder(opened.folder.path());
  state.opened.clear();
  state.reload();
  const std::size_t first = *state.current;
  Shell& shell = opened.desktop.shell();
  opened.desktop.press(ImGuiKey_RightArrow);
  CHECK(state.step == 0);  // arrows are the panels' own before
  shell.commands().invoke("maximise.lessons");
  opened.desktop.press(ImGuiKey_F11);
  opened.desktop.settle_studies();
  CHECK(text_size_of(shell.look(), TextRole::caption, "x").y >= 24);
  CHECK(opened.desktop.says("The first step"));
  CHECK_FALSE(opened.desktop.says("Large type"));
  opened.desktop.press(ImGuiKey_RightArrow);
  CHECK(state.step == 1);
  opened.desktop.press(ImGuiKey_RightArrow);
  CHECK(state.step == 0);
  CHECK(*state.current == first + 1);
  CHECK(state.open_now()->id == "t_next");
  opened.desktop.press(ImGuiKey_RightArrow);
  opened.desktop.press(ImGuiKey_RightArrow);  // behind the last there is nothing
  CHECK(shell.view().maximised == "lessons");
  CHECK(state.step == 1);
  opened.desktop.press(ImGuiKey_PageUp);
  opened.desktop.press(ImGuiKey_PageUp);
  CHECK(*state.current == first);
  CHECK(state.step == 1);
  CHECK(shell.view().maximised == "lessons");
  opened.desktop.press(ImGuiKey_Escape);
  opened.desktop.frames(2);
  CHECK(shell.view().maximised.empty());
  CHECK_FALSE(state.presented());
}

TEST_CASE("on a screen of 1280 by 720 the smallest type of what is presented has 24 pixels") {
  tests::NullDesktop desktop(tests::small_scenario(), {1280, 720});
  Shell& shell = desktop.shell();
  REQUIRE(desktop.state<LessonsState>().open_named("memory-of-training"));
  shell.commands().invoke("maximise.lessons");
  desktop.press(ImGuiKey_F11);
  desktop.settle_studies();
  CHECK(desktop.says("What a weight brings along"));
  for (const TextRole role : {TextRole::caption, TextRole::body, TextRole::number, TextRole::title})
    CHECK(text_size_of(shell.look(), role, "x").y >= 24);
}

TEST_CASE("the palette opens a lesson by its name, and the list without one") {
  tests::NullDesktop desktop(tests::small_scenario(), {1600, 1000});
  auto& state = desktop.state<LessonsState>();
  CHECK(desktop.shell().commands().invoke("lesson.open=experts"));
  desktop.settle_studies();
  REQUIRE(state.open_now());
  CHECK(state.open_now()->id == "experts");
  CHECK(desktop.shell().commands().invoke("lesson.open"));
  CHECK(state.open_now() == nullptr);
}

TEST_CASE(
    "presented on a small screen, what Enter reveals is scrolled to, and the next step begins at its top") {
  tests::NullDesktop desktop(tests::small_scenario(), {1280, 720});
  REQUIRE(desktop.state<LessonsState>().open_named("complexity"));
  desktop.shell().commands().invoke("maximise.lessons");
  desktop.press(ImGuiKey_F11);
  desktop.settle_studies();
  const auto scrolled = [] {
    for (const ImGuiWindow* window : GImGui->Windows)
      if (window->WasActive && std::string_view(window->Name).find("/step_") != std::string_view::npos &&
          window->ScrollMax.y > 0)
        return window->Scroll.y;
    return -1.0f;
  };
  desktop.frames(4);
  REQUIRE(scrolled() <= 0);
  desktop.press(ImGuiKey_Enter);
  desktop.frames(8);
  CHECK(scrolled() > 0);
  desktop.press(ImGuiKey_UpArrow);
  desktop.frames(4);
  CHECK(scrolled() == 0);
  desktop.press(ImGuiKey_DownArrow);
  desktop.frames(4);
  CHECK(scrolled() > 0);
  desktop.press(ImGuiKey_RightArrow);
  desktop.settle_studies();
  desktop.frames(4);
  CHECK(scrolled() <= 0);
}

TEST_CASE("presented, a question is answered by keys: a letter chooses and Enter locks it") {
  Opened opened;
  auto& state = opened.desktop.state<LessonsState>();
  opened.desktop.press(ImGuiKey_B);
  CHECK(state.progress.answers.begin()->second.text.empty());  // letters are others' before
  opened.desktop.shell().commands().invoke("maximise.lessons");
  opened.desktop.press(ImGuiKey_F11);
  opened.desktop.settle_studies();
  opened.desktop.press(ImGuiKey_B);
  CHECK(state.progress.answers.begin()->second.text == "1");
  CHECK_FALSE(opened.desktop.says("Remember this line."));
  opened.desktop.press(ImGuiKey_Enter);
  opened.desktop.frames(2);
  CHECK(state.progress.answers.begin()->second.locked);
  CHECK(opened.desktop.says("The answer is 1"));
  CHECK(opened.desktop.says("Remember this line."));
}

TEST_CASE(
    "an answer that is revealed by Enter leaves the arrows to the lesson, where a number was asked for, "
    "too") {
  tests::NullDesktop desktop(tests::small_scenario(), {1280, 720});
  auto& state = desktop.state<LessonsState>();
  REQUIRE(desktop.shell().commands().invoke("lesson.open=memory-of-training"));
  desktop.settle_studies();
  desktop.settle_studies();
  desktop.shell().commands().invoke("maximise.lessons");
  desktop.press(ImGuiKey_F11);
  desktop.settle_studies();
  desktop.press(ImGuiKey_Enter);
  desktop.frames(3);
  CHECK(desktop.says("The answer is 16"));
  desktop.press(ImGuiKey_RightArrow);
  CHECK(state.step == 1);
}

TEST_CASE(
    "what a step measured is kept between starts, and shown beside the prediction of the same scenario "
    "alone") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "m.md")
      << "---\ntitle: T\nchapter: 1 B\nminutes: 1\nsystems: 13\nscenario: train-gpt2-124m-a100\n---\n\n## "
         "S\n\n"
         ":measure step_time for implementation.attention: standard, flash\n";
  const lesson::Lesson one = lesson::load_lesson(folder.path() / "m.md");
  const lesson::Measurement& measurement = *lesson::measurement_of(one.steps[0]);
  lesson::Predictions predictions;
  const sim::Scenario scenario = lesson::scenario_at(one, 0);
  auto ran = std::make_shared<sim::Report>();
  ran->source.scenario = lesson::as_measured_here(scenario, measurement);
  ran->source.scenario.implementation.attention = sim::AttentionKind::standard;
  ran->source.date = "2026-01-02T03:04:05Z";
  ran->source.device = "a machine";
  ran->step_time = {1.5};
  keep_runs({{ran, {}}, {nullptr, "it did not fit"}}, folder.path(), "m", 0);
  const lesson::MeasuredRuns again = kept_runs(folder.path(), "m", 0);
  REQUIRE(again.size() == 2);
  const auto shown = [&](const sim::Scenario& of) {
    return std::get<lesson::ShownMeasurement>(lesson::show(one, 0, of, predictions, &again).blocks.at(0));
  };
  CHECK(shown(scenario).rows.at(0).measured == "1.50 s");
  CHECK(shown(scenario).rows.at(1).measured.empty());
  CHECK(shown(scenario).measured == "2026-01-02, a machine");
  CHECK_THAT(shown(scenario).why_not.at(0), contains("it did not fit"));
  sim::Scenario other = scenario;
  other.workload.seq_len = 512;
  CHECK(shown(other).rows.at(0).measured.empty());
  CHECK(kept_runs(folder.path(), "m", 1).empty());
}

TEST_CASE("kept runs that nest without end are set aside, and the step can be measured again") {
  const TemporaryFolder folder;
  const auto file = folder.write("m-1.json", std::string(200'000, '['));
  CHECK(kept_runs(folder.path(), "m", 0).empty());
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(std::filesystem::exists(folder.path() / "m-1.json.set-aside"));
}

TEST_CASE("the lecturer's notes stand in a window of their own, shown and hidden by a key") {
  Opened opened;
  CHECK_FALSE(opened.desktop.says("seconds."));
  opened.desktop.press(ImGuiMod_Shift | ImGuiKey_N);
  opened.desktop.frames(2);
  CHECK(opened.desktop.says("32"));
  CHECK(opened.desktop.says("seconds."));
  const ImGuiWindow* const window = ImGui::FindWindowByName("For the lecturer");
  REQUIRE(window);
  CHECK(window->Active);
  opened.desktop.press(ImGuiMod_Shift | ImGuiKey_N);
  opened.desktop.frames(2);
  CHECK_FALSE(opened.desktop.says("seconds."));
}

TEST_CASE(
    "what a class guessed is read from a table and counted beside what is right, behind the last step") {
  Opened opened;
  auto& state = opened.desktop.state<LessonsState>();
  const auto file =
      opened.folder.write("class.csv", "lesson,step,guess\nsmall,1,A\nsmall,1,b\nsmall,1,A\nsmall,1,maybe\n");
  CHECK_FALSE(opened.desktop.says("What the class guessed"));
  opened.desktop.shell().open(file);
  opened.desktop.settle_studies();
  opened.desktop.settle_studies();
  CHECK(state.step == 1);
  CHECK(opened.desktop.says("What the class guessed"));
  CHECK(opened.desktop.says("4 guesses; the answer is 1"));
  const std::vector<GuessedQuestion>& questions = *state.guessed.result();
  REQUIRE(questions.size() == 1);
  REQUIRE(questions[0].rows.size() == 3);
  CHECK(questions[0].rows[0].guesses == 2);
  CHECK(questions[0].rows[0].is_right);
  CHECK(questions[0].rows[1].guesses == 1);
  CHECK(questions[0].rows[2].label == "not understood");
  CHECK(questions[0].rows[2].guesses == 1);
  opened.desktop.shell().commands().invoke("lesson.back");
  opened.desktop.settle_studies();
  CHECK_FALSE(opened.desktop.says("What the class guessed"));
}

TEST_CASE("numbers that a class guessed are counted by how far they are off, with and without a unit") {
  const std::string text(kLesson);
  const lesson::Lesson one = lesson::parse_lesson(
      text.substr(0, text.find("## The first")) +
          "## S\n\n:ask How long?\n:answer layers * 1 s within 10%\n\n:ask How many?\n:answer layers\n",
      "numbers.md");
  lesson::Predictions predictions;
  ClassGuesses guesses;  // of 32
  guesses.guesses[{one.id, 0, 0}] = {"31", "32 s", "10", "20000 ms", "40", "100 s", "3 GB"};
  guesses.guesses[{one.id, 0, 1}] = {"32"};
  const auto questions = guessed_questions(one, guesses, predictions);
  REQUIRE(questions.size() == 2);
  std::vector<std::size_t> counts;
  for (const GuessedQuestion::Row& row : questions[0].rows) counts.push_back(row.guesses);
  CHECK(counts == std::vector<std::size_t>{1, 1, 2, 1, 1, 1});
  CHECK(questions[0].rows[2].is_right);
  CHECK(questions[1].rows[2].guesses == 1);
}

TEST_CASE("a table of guesses that is wrong is refused with its line") {
  Opened opened;
  const auto refusal = [&](const std::string& rows) -> std::string {
    const auto file = opened.folder.write("class.csv", "lesson,step,guess\n" + rows);
    try {
      opened.desktop.state<LessonsState>().open(file);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "none";
  };
  CHECK(refusal("small,1,A\n") == "none");
  CHECK_THAT(refusal("small,1,A\nsmall,0,A\n"),
             contains("class.csv: line 3: step is \"0\": it counts from 1"));
  CHECK_THAT(refusal("large,1,A\n"), contains("\"large\" is no lesson"));
  CHECK_THAT(refusal("small,1\n"), contains("line 2"));
  CHECK_FALSE(is_class_guesses(opened.folder.write("other.csv", "step,guess\n1,A\n")));
}

TEST_CASE("the best tier of a mission is kept and counted, and a worse one takes nothing away") {
  const TemporaryFolder folder;
  Opened opened;
  auto& state = opened.desktop.state<LessonsState>();
  state.settings = folder.path();
  state.keep(*state.open_now(), lesson::Tier::silver);
  state.keep(*state.open_now(), lesson::Tier::bronze);
  const LessonProgress again = load_lesson_progress(folder.path());
  CHECK(again.tiers.at("small") == lesson::Tier::silver);
  CHECK(score_of(again) == 2);
}

TEST_CASE("a handout is one page with pictures and room for answers, and gives none away") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "small.md") << kLesson;
  const lesson::Lesson small = lesson::load_lesson(folder.path() / "small.md");
  lesson::Predictions predictions;
  const std::string page = app::handout(small, predictions, {});
  CHECK_THAT(page, contains("How many devices are there?"));
  CHECK_THAT(page, contains("<svg"));
  CHECK_THAT(page, contains("class=\"room\""));
  CHECK_THAT(page, !contains("One is enough to begin with."));
  CHECK_THAT(page, !contains("seconds."));
  CHECK(page.find("Remember this line.") > page.find("When you have answered"));
  for (const char* outside : {"href=", "src=", "@import", "url("}) CHECK_THAT(page, !contains(outside));
  const std::string own = app::handout(small, predictions, {true, true});
  CHECK_THAT(own, contains("One is enough to begin with."));
  CHECK_THAT(own, contains("Wait for <b>32</b> seconds."));
}

TEST_CASE("a moving picture stands still until it is played, and then goes on to its end") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "moving.md";
  std::ofstream(file) << "---\ntitle: T\nchapter: 1 B\nminutes: 1\nsystems: 24\nscenario: "
                         "train-llama-3.1-8b-h100\n---\n\n## S\n\n"
                         ":set strategy.pipeline_parallel=4, workload.global_batch_size=8\n:film pipeline\n";
  Opened opened;
  opened.desktop.shell().open(file);
  opened.desktop.settle_studies();
  opened.desktop.settle_studies();
  auto& state = opened.desktop.state<LessonsState>();
  CHECK(opened.desktop.says("8 micro-batches through 4 stages"));
  REQUIRE(state.players.size() == 1);
  opened.desktop.frames(30);
  CHECK(state.players.begin()->second.share == 0);
  state.players.begin()->second.playing = true;
  opened.desktop.frames(2);
  CHECK(opened.desktop.shell().changes_in().has_value());
  CHECK(state.players.begin()->second.share > 0);
  opened.desktop.frames(60 * 11);
  CHECK(state.players.begin()->second.share == 1);
  CHECK_FALSE(state.players.begin()->second.playing);
  CHECK(opened.desktop.says("0 of 4 stages work, 4 wait"));
}

TEST_CASE("exponents of growth are read from what the series of runs wrote") {
  const GrowthByName growths = growth_from_json(
      R"({"series": [{"name": "a", "growth": {"time_measured": 1.5, "memory_measured": 1}}, {"name": "b"}]})");
  CHECK(growths.at("a").time_measured == 1.5);
  CHECK_FALSE(growths.at("a").time_predicted.has_value());
  CHECK_FALSE(growths.at("b").memory_measured.has_value());
  CHECK(growth_from_json(growth_to_json(growths)) == growths);
  CHECK_THROWS_WITH(growth_from_json("Killed"), contains("without its result"));
}

TEST_CASE("the welcome shows four pictures, a chosen one opens something, and Escape skips it") {
  tests::NullDesktop desktop(tests::small_scenario(), {1600, 1000});
  Shell& shell = desktop.shell();
  CHECK_FALSE(desktop.says("Begin anywhere"));
  shell.welcome();
  desktop.settle_studies();
  for (const WelcomeCard& card : welcome_cards()) {
    const std::string_view command = card.command;
    CHECK(shell.commands().find(command.substr(0, command.find('='))) != nullptr);
    CHECK(std::filesystem::exists(lesson::lesson_directory() / (std::string(card.film_of) + ".md")));
  }
  CHECK(desktop.says("Begin anywhere"));
  desktop.press(ImGuiKey_Escape);
  desktop.frames(2);
  CHECK_FALSE(desktop.says("Begin anywhere"));
  shell.welcome();
  desktop.settle_studies();
  desktop.click({500, 300});  // in the first picture
  desktop.settle_studies();
  desktop.settle_studies();
  CHECK_FALSE(desktop.says("Begin anywhere"));
  const auto& state = desktop.state<LessonsState>();
  REQUIRE(state.open_now());
  CHECK(state.open_now() == state.entries.front().lesson.get());
}

TEST_CASE("Learn opens the first lesson of the list that is not done, where it was left, and else the list") {
  tests::NullDesktop desktop(tests::small_scenario(), {1600, 1000});
  auto& state = desktop.state<LessonsState>();
  Commands& commands = desktop.shell().commands();
  REQUIRE(commands.invoke("lesson.learn"));
  REQUIRE(state.current == 0);
  CHECK(state.step == 0);
  desktop.settle_studies();
  CHECK(desktop.says(state.open_now()->steps[0].title));
  const auto see = [&](std::size_t lesson, std::size_t steps) {
    state.progress.steps[state.entries[lesson].lesson->id] = steps;
  };
  for (const std::size_t done : {0, 2, 3}) see(done, state.entries[done].lesson->steps.size());
  see(1, 2);
  REQUIRE(state.entries[1].lesson->steps.size() > 2);
  REQUIRE(commands.invoke("lesson.learn"));
  CHECK(state.current == 1);
  CHECK(state.step == 1);
  for (const LessonsState::Entry& entry : state.entries)
    if (entry.lesson->mission)
      state.progress.tiers[entry.lesson->id] = lesson::Tier::bronze;
    else
      state.progress.steps[entry.lesson->id] = entry.lesson->steps.size();
  REQUIRE(commands.invoke("lesson.learn"));
  CHECK(state.open_now() == nullptr);
}

TEST_CASE("the list of lessons has as many columns as there is room for, each lesson once, and opens each") {
  const auto [size, columns] = GENERATE(std::pair{ImVec2(1280, 720), 2}, std::pair{ImVec2(1600, 1000), 3},
                                        std::pair{ImVec2(2560, 1440), 5});
  tests::NullDesktop desktop(tests::small_scenario(), size);
  desktop.shell().view().maximised = "lessons";
  desktop.settle_studies();
  auto& state = desktop.state<LessonsState>();
  REQUIRE(state.entries.size() > 20);
  const auto glyphs = tests::drawn_glyphs();
  std::set<float> lefts;
  std::string last_chapter;
  float right = 0;
  for (const LessonsState::Entry& entry : state.entries) {
    REQUIRE(entry.lesson);
    if (entry.lesson->chapter == last_chapter) continue;
    last_chapter = entry.lesson->chapter;
    CAPTURE(last_chapter);
    const tests::DrawnGlyph* const at = tests::drawn_at(glyphs, last_chapter);
    // What does not fit is scrolled to.
    if (size.y > 1400) REQUIRE(at);
    if (at) lefts.insert(std::round(at->least.x / 20));
  }
  for (const tests::DrawnGlyph& glyph : glyphs)
    if (glyph.least.y > 80) right = std::max(right, glyph.most.x);
  CHECK(static_cast<int>(lefts.size()) == columns);
  CHECK(right > 0.95f * size.x);
  const lesson::Lesson& last = *state.entries.back().lesson;
  if (size.y < 1400) return;
  const tests::DrawnGlyph* const at = tests::drawn_at(glyphs, last.title);
  REQUIRE(at);
  desktop.click({at->least.x + 2, at->least.y + 2});
  REQUIRE(state.open_now());
  CHECK(state.open_now()->id == last.id);
}
