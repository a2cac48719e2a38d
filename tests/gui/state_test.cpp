// The parts under the window: history, runs, streams, settings, when to draw.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "app/gui/document.h"
#include "app/gui/jobs/child_process.h"
#include "app/gui/jobs/passed_file.h"
#include "app/gui/jobs/run_state.h"
#include "app/gui/redraw_policy.h"
#include "app/gui/settings.h"
#include "sim/cost/predict.h"
#include "sim/cost/static_batch.h"
#include "sim/report/metrics.h"
#include "tests/gui/drawn_text.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace app::gui;

namespace {

sim::Scenario with_layers(std::int64_t layers) {
  sim::Scenario scenario = tests::small_scenario();
  scenario.model.num_hidden_layers = layers;
  return scenario;
}

// Runs a shell command to its end.
struct Finished {
  std::vector<std::string> lines;
  ChildEnd end;
  double seconds = 0;
};
Finished run_shell(const std::string& script, double cancel_after = -1) {
  Finished result;
  std::mutex mutex;
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  {
    ChildProcess child(
        {"sh", "-c", script},
        [&](std::string_view line) {
          const std::lock_guard lock(mutex);
          result.lines.emplace_back(line);
        },
        [] {}, [&](const ChildEnd& end) { result.end = end; });
    while (!child.ended()) {
      if (cancel_after >= 0 && elapsed() > cancel_after) child.cancel();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    result.seconds = elapsed();
  }
  return result;
}

}  // namespace

TEST_CASE("edits of one key within a gesture are one undo step, from its beginning to its end") {
  Document document(with_layers(12));
  document.edit("layers 12 to 13", with_layers(13), "layers");
  document.edit("layers 13 to 14", with_layers(14), "layers");
  document.end_gesture();
  document.edit("layers 14 to 15", with_layers(15), "layers");
  document.undo();
  CHECK(document.scenario() == with_layers(14));
  document.undo();
  CHECK(document.scenario() == with_layers(12));
  CHECK_FALSE(document.can_undo());
  document.redo();
  document.redo();
  CHECK(document.scenario() == with_layers(15));
}

TEST_CASE("a new edit forgets what was undone") {
  Document document(with_layers(12));
  document.edit("a", with_layers(13));
  document.undo();
  document.edit("b", with_layers(20));
  CHECK_FALSE(document.can_redo());
}

TEST_CASE("a stream of any length keeps its extremes, its end and a bounded number of points") {
  Series series;
  for (int i = 0; i < 100000; ++i)
    series.append(i, std::sin(i * 0.01) + (i == 54321 ? 50 : 0) - (i == 777 ? 40 : 0));
  CHECK(series.size() == 100000);
  CHECK(series.last().x == 99999);
  const auto points = series.points();
  CHECK(points.size() <= 1024);
  double least = 0, greatest = 0;
  bool ordered = true;
  for (std::size_t i = 0; i < points.size(); ++i) {
    least = std::min(least, points[i].y);
    greatest = std::max(greatest, points[i].y);
    if (i > 0) ordered = ordered && points[i - 1].x <= points[i].x;
  }
  CHECK(ordered);
  CHECK(least == series.least());
  CHECK(greatest == series.greatest());
}

TEST_CASE("a replayed report has the run's rows, its steps as series, and joins its own prediction") {
  sim::Report report = sim::predict(tests::small_scenario());
  report.source.kind = sim::ReportKind::measured;
  for (int i = 1; i <= 5; ++i) report.steps.push_back({i, 5.0 - i, 1.0, sim::Seconds{0.5}, 4096});
  RunState state(sim::Task::train, [](const sim::Source& source) {
    return std::make_shared<const sim::Report>(sim::predict(source.scenario));
  });
  state.replay(sim::events_of(report));
  const auto view = state.view();
  CHECK(view->phase == RunPhase::ended);
  CHECK(view->loss.size() == 5);
  CHECK(view->tokens_per_second.last().y == Approx(4096 / 0.5));
  REQUIRE(view->comparison);
  CHECK(view->comparison->joined == report.rows.size());
  CHECK(view->comparison->only_a + view->comparison->only_b == 0);
}

TEST_CASE("a run is predicted again for the machine as it was while it ran, and a note says so") {
  sim::Report report = sim::predict(tests::small_scenario());
  report.source.kind = sim::ReportKind::measured;
  std::vector<double> asked;  // how many times as long arithmetic takes
  RunState state(sim::Task::train, [&](const sim::Source& source) {
    asked.push_back(source.slowdown.arithmetic);
    return std::make_shared<const sim::Report>(sim::predict(source.scenario));
  });
  std::vector<sim::Event> events = sim::events_of(report);
  std::get<sim::EndEvent>(events.back()).slowdown = {1.5, 1, 0.02};
  state.replay(events);
  CHECK(asked == std::vector<double>{1, 1.5});
  const auto view = state.view();
  CHECK(std::ranges::any_of(view->log, [](const LogLine& line) {
    return line.text.find("arithmetic took 1.50 times as long") != std::string::npos;
  }));
}

TEST_CASE("a line that is no event becomes a note, not an end") {
  RunState state(sim::Task::train, [](const sim::Source&) { return nullptr; });
  state.line("Segmentation fault");
  state.line(sim::to_ndjson(sim::StepResult{1, 2.5, 1, sim::Seconds{0.1}, 100}));
  const auto view = state.view();
  CHECK(view->loss.last().y == 2.5);
  REQUIRE(view->log.size() == 1);
  CHECK(view->log[0].kind == LogLine::Kind::bad);
}

TEST_CASE("a child's output arrives line by line, and its last words say why it failed") {
  const Finished fine = run_shell("echo one; printf two");
  CHECK(fine.lines == std::vector<std::string>{"one", "two"});
  CHECK(fine.end.exit_code == 0);
  CHECK(fine.end.message.empty());
  const Finished failed = run_shell("echo 'the disk is full' >&2; exit 6");
  CHECK(failed.end.exit_code == 6);
  CHECK(failed.end.message == "the disk is full");
  const Finished killed = run_shell("kill -9 $$");
  CHECK(killed.end.exit_code == 128 + 9);
  CHECK(killed.end.message.find("signal") != std::string::npos);
}

TEST_CASE("a cancelled child ends before what it had started would have ended by itself") {
  constexpr double kSleeps = 60;
  const Finished cancelled = run_shell("sleep 60 & wait", 0.1);
  CHECK(cancelled.seconds < kSleeps);
  CHECK(cancelled.end.message.empty());
}

TEST_CASE("a cancelled child that does not listen is killed before its operation is done") {
  const Finished cancelled =
      run_shell("trap '' TERM; echo begun; sleep 8; echo finished; exec sleep 60", 0.5);
  CHECK(cancelled.lines == std::vector<std::string>{"begun"});
  CHECK(cancelled.end.exit_code == 128 + 9);
  CHECK(cancelled.end.message.empty());
}

TEST_CASE("the scenario of the first start is legal, fits, and keeps its devices busy") {
  const sim::Scenario scenario = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  CHECK(sim::validate(scenario).empty());
  const sim::Report report = sim::predict(scenario);
  CHECK(sim::fits(report));
  CHECK(sim::hfu(report) > 0.4);
}

TEST_CASE("settings read back as they were written, a spoilt file is no reason not to start") {
  const auto directory = std::filesystem::temp_directory_path() / "ridgepoint_settings_test";
  std::filesystem::remove_all(directory);
  CHECK(load_settings(directory) == Settings{});
  Settings settings;
  settings.theme = app::Theme::light;
  settings.scale = 1.5f;
  settings.bytes = sim::ByteUnits::decimal;
  settings.still = true;
  settings.layout = "[Window][x]\nPos=1,2\n";
  settings.closed_panels = {"explain"};
  settings.tabs = {{with_layers(7)}};
  save_settings(settings, directory);
  CHECK(load_settings(directory) == settings);
  const auto rewrite = [&](const std::string& from, const std::string& to) {
    std::ifstream in(directory / "desktop.json");
    std::string text{std::istreambuf_iterator<char>(in), {}};
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
    in.close();
    std::ofstream(directory / "desktop.json") << text;
  };
  // A scenario that this version does not know costs nothing but itself.
  rewrite("\"num_hidden_layers\"", "\"layers_of_another_version\"");
  settings.tabs.clear();
  CHECK(load_settings(directory) == settings);
  // What was read in part is kept whole, and so is what cannot be read.
  CHECK(std::filesystem::exists(directory / "desktop.json.set-aside"));
  CHECK_FALSE(std::filesystem::exists(directory / "desktop.json"));
  std::ofstream(directory / "desktop.json") << "{\"schema_version\": 1, \"theme\": 7}";
  CHECK(load_settings(directory) == Settings{});
  CHECK(std::filesystem::exists(directory / "desktop.json.set-aside-2"));
  std::filesystem::remove_all(directory);
}

TEST_CASE("a file whose name is no UTF-8 is forgotten, and the other settings are kept") {
  const TemporaryFolder folder;
  Settings settings;
  settings.recent_files = {"/a/one.json", "/a/caf\xe9.json"};
  save_settings(settings, folder.path());
  settings.recent_files.pop_back();
  CHECK(load_settings(folder.path()) == settings);
}

TEST_CASE("what is passed to a process lies where only its user can enter, one file for each") {
  std::filesystem::path gone;
  {
    const PassedFile a("scenario.json", "{}"), b("scenario.json", "[]");
    CHECK(a.path() != b.path());
    gone = std::filesystem::path(a.path()).parent_path();
    CHECK(std::filesystem::status(gone).permissions() == std::filesystem::perms::owner_all);
  }
  CHECK_FALSE(std::filesystem::exists(gone));
}

TEST_CASE("an idle window does not draw") {
  RedrawPolicy policy;
  while (policy.should_draw(0)) policy.drawn(0);
  CHECK_FALSE(policy.should_draw(100));
  policy.on_input(100);
  CHECK(policy.should_draw(100.2));
  for (int i = 0; i < 10; ++i) policy.drawn(100.2);
  CHECK_FALSE(policy.should_draw(101));
  policy.on_news();
  int frames = 0;
  for (; policy.should_draw(200) && frames < 100; ++frames) policy.drawn(200);
  CHECK(frames >= 1);
  CHECK(frames < 10);
  policy.draw_at(300);
  CHECK_FALSE(policy.should_draw(299));
  CHECK(policy.quiet_for(299.75, 0.5) == 0.25);
  REQUIRE(policy.should_draw(300));
  policy.drawn(300);
  CHECK_FALSE(policy.should_draw(301));
  CHECK(policy.quiet_for(301, 0.5) == 0.5);
}

TEST_CASE("a press and its release are both drawn where a single frame takes longer than input settles") {
  RedrawPolicy policy;
  while (policy.should_draw(0)) policy.drawn(0);
  double now = 100;
  policy.on_input(now);
  int frames = 0;
  for (; frames < 100; ++frames) {
    now += 3;
    if (!policy.should_draw(now)) break;
    policy.drawn(now);
  }
  CHECK(frames >= 2);
  CHECK(frames < 10);
}

TEST_CASE(
    "five idle seconds draw nothing, an edit draws its prediction and what it changed, and then nothing "
    "again") {
  tests::NullDesktop desktop;
  desktop.live(1);
  const auto frames_in = [&](double seconds) {
    const std::size_t before = desktop.shell().frames_drawn();
    desktop.live(seconds);
    return desktop.shell().frames_drawn() - before;
  };
  CHECK(frames_in(5) == 0);
  desktop.shell().document().edit("layers 12 to 13", with_layers(13));
  desktop.frame();  // that of the key or button which made the edit
  desktop.shell().wait_for_prediction();
  desktop.shell().wait_for_studies();  // whose threads may be slower than the frames' clock, which is none
  const std::size_t frames = frames_in(1);
  CHECK(frames >= 1);
  CHECK(frames < 10);
  CHECK(frames_in(2) == 1);  // what it changed is no longer shown
  CHECK(frames_in(5) == 0);
}

TEST_CASE("a toast leaves an idle window by itself, with one frame") {
  tests::NullDesktop desktop;
  desktop.shell().commands().invoke("edit.copy_command_line");
  desktop.frame();
  REQUIRE(desktop.shell().changes_in());
  const std::size_t before = desktop.shell().frames_drawn();
  desktop.live(0.1);
  const std::size_t settled = desktop.shell().frames_drawn();
  desktop.live(5);
  CHECK(settled > before);
  CHECK(desktop.shell().frames_drawn() == settled + 1);
}

TEST_CASE("a toast lies on no other words, and is as long as its window at most") {
  const ImVec2 size = GENERATE(ImVec2{1280, 720}, ImVec2{700, 500});
  tests::NullDesktop desktop(tests::small_scenario(), size);
  REQUIRE(tests::unreadable_text().empty());
  desktop.shell().commands().invoke("edit.copy_command_line");
  CHECK(desktop.says("Copied: ridgepoint predict"));
  CHECK(tests::unreadable_text() == std::vector<std::string>());
}

TEST_CASE("the desktop opens on what was shown last, and on the default where that cannot be read") {
  Settings settings;
  settings.tabs = {{with_layers(7)}};
  {
    tests::NullDesktop desktop(with_layers(12), {1600, 1000}, settings);
    CHECK(desktop.shell().document().scenario() == with_layers(7));
    CHECK(desktop.shell().settings().tabs == settings.tabs);
  }
  tests::NullDesktop first(with_layers(12));
  CHECK(first.shell().document().scenario() == with_layers(12));
}

TEST_CASE("an inference engine is priced by its profile: launches and the host take their time") {
  sim::Scenario s = tests::small_scenario();
  s.workload.task = sim::Task::generate;
  const auto generation = [&](const char* implementation) {
    s.implementation = sim::load_implementation_preset(implementation);
    return make_prediction(s, nullptr, [] { return false; });
  };
  const Prediction ours = generation("ridgepoint"), engine = generation("vllm_0.14");
  REQUIRE(ours.report);
  REQUIRE(engine.report);
  const sim::StaticBatchTimes times = sim::static_batch_times(sim::IterationCost(s, nullptr), s);
  CHECK(*sim::ttft(*engine.report) == times.first_token.total());
  CHECK(sim::tpot(*engine.report)->value == Approx(times.later_token.total().value));
  CHECK(sim::step_time(*engine.report) == times.total.total());
  CHECK(sim::step_time(*engine.report) != sim::step_time(*ours.report));
  CHECK(engine.report->step_low < sim::step_time(*engine.report));
  CHECK(engine.report->step_high > sim::step_time(*engine.report));
}

TEST_CASE(
    "without a tokenizer a run is given as many ids as the prompt is long, all of them in the vocabulary") {
  sim::Scenario s = tests::small_scenario();
  s.workload.task = sim::Task::generate;
  s.model.vocab_size = 100;
  s.workload.prompt_length = GENERATE(1, 3, 128);
  const app::gui::RunChoices choices;
  CHECK(app::gui::with_prompt_of(choices, s) == s);
  const std::vector<std::string> flags = app::gui::prompt_flags(choices, s);
  REQUIRE(flags.size() == 2);
  CHECK(flags[0] == "--prompt-tokens");
  std::istringstream ids(flags[1]);
  std::int64_t count = 0;
  for (std::string id; std::getline(ids, id, ','); ++count) CHECK(std::stoi(id) < 100);
  CHECK(count == s.workload.prompt_length);
}
