// UI work on the null backend, printed beside what is aimed at: processor time of building the draw lists
// (others on the machine do not count), of sweeps, of an idle window, and how memory grows with a long run.
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/gui/jobs/run_state.h"
#include "app/gui/panels/planner.h"
#include "app/gui/panels/sweep.h"
#include "sim/cost/predict.h"
#include "tests/gui/null_desktop.h"

namespace {

constexpr int kFrames = 1000;
constexpr int kFramesPerSecond = 60, kPointsPerSecond = 10000;
constexpr double kMedianAim = 3, kSlowAim = 6;  // milliseconds a frame
constexpr double kSweepAim = 100;               // milliseconds

double milliseconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}
double thread_milliseconds() {
  return milliseconds_of(CLOCK_THREAD_CPUTIME_ID);
}
double process_milliseconds() {
  return milliseconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

double resident_mib() {
  std::ifstream in("/proc/self/statm");
  double all = 0, resident = 0;
  in >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

class FrameTimes {
 public:
  void frame(tests::NullDesktop& desktop) {
    const double begin = thread_milliseconds();
    desktop.frame();
    milliseconds_.push_back(thread_milliseconds() - begin);
  }
  void print(const std::string& what) {
    std::sort(milliseconds_.begin(), milliseconds_.end());
    const std::size_t n = milliseconds_.size();
    const double median = milliseconds_[n / 2], slow = milliseconds_[n * 99 / 100];
    const bool holds = median <= kMedianAim && slow <= kSlowAim;
    std::printf("%-60s median %5.2f ms, 99th percentile %5.2f ms%s\n", what.c_str(), median, slow,
                holds ? "" : "  MISSED");
    std::fflush(stdout);
  }

 private:
  std::vector<double> milliseconds_;
};

void print_frames(const std::string& what, tests::NullDesktop& desktop, int frames = kFrames / 5) {
  FrameTimes times;
  for (int i = 0; i < frames; ++i) times.frame(desktop);
  times.print(what);
}

// Every panel in a window of its own, side by side: none hides another.
app::gui::Settings all_panels_in_sight(ImVec2 size) {
  constexpr int kColumns = 5;
  const auto& panels = app::gui::panels();
  const int rows = (static_cast<int>(panels.size()) + kColumns - 1) / kColumns;
  const int width = static_cast<int>(size.x) / kColumns, height = (static_cast<int>(size.y) - 120) / rows;
  app::gui::Settings settings;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const int column = static_cast<int>(i) % kColumns, row = static_cast<int>(i) / kColumns;
    settings.layout += "[Window][" + app::gui::window_name(*panels[i]) +
                       "]\nPos=" + std::to_string(column * width) + "," + std::to_string(90 + row * height) +
                       "\nSize=" + std::to_string(width) + "," + std::to_string(height) + "\nCollapsed=0\n\n";
  }
  return settings;
}

// The child that a run is: "SECONDS" of steps at the rate, or 0 and a number: as many as fast as they go.
int write_steps(double seconds, std::int64_t count) {
  sim::Report report = sim::predict(tests::small_scenario());
  report.source.kind = sim::ReportKind::measured;
  const std::int64_t steps = seconds > 0 ? static_cast<std::int64_t>(seconds * kPointsPerSecond) : count;
  std::puts(sim::to_ndjson(sim::BeginEvent{report.source, steps}).c_str());
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kAtATime = 100;
  for (std::int64_t i = 1; i <= steps; ++i) {
    const double of_run = static_cast<double>(i);
    std::puts(sim::to_ndjson(sim::StepResult{i, 10.0 / of_run, 1.0 + 0.01 * static_cast<double>(i % 11),
                                             sim::Seconds{0.1 + 0.01 * static_cast<double>(i % 7)}, 4096})
                  .c_str());
    if (seconds <= 0 || i % kAtATime != 0) continue;
    std::fflush(stdout);
    std::this_thread::sleep_until(begin + std::chrono::duration<double>(of_run / kPointsPerSecond));
  }
  return 0;
}

void play(tests::NullDesktop& desktop, const std::string& recording) {
  desktop.shell().runs().play(recording, sim::Task::train);
}

// While ten thousand points a second stream in, as a run's process writes them.
void streaming(const char* program) {
  constexpr ImVec2 kSize = {2560, 1440};
  tests::NullDesktop desktop(tests::small_scenario(), kSize, all_panels_in_sight(kSize), program);
  desktop.settle_studies();
  constexpr int kSeconds = 15;
  play(desktop, "seconds:" + std::to_string(kSeconds));
  while (desktop.shell().runs().of(sim::Task::train).loss.size() == 0) desktop.frame();
  FrameTimes times;
  const double all_begin = process_milliseconds(), frames_begin = thread_milliseconds();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < (kSeconds - 2) * kFramesPerSecond; ++i) {
    times.frame(desktop);
    std::this_thread::sleep_until(begin + std::chrono::duration<double>((i + 1.0) / kFramesPerSecond));
  }
  const double passed =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  const double frames = thread_milliseconds() - frames_begin, all = process_milliseconds() - all_begin;
  const std::size_t points = desktop.shell().runs().of(sim::Task::train).loss.size();
  int in_sight = 0;
  for (const app::gui::PanelEntry* panel : app::gui::panels()) {
    const ImGuiWindow* window = desktop.window_of(panel->id);
    in_sight += window && window->Active && !window->Hidden && !window->SkipItems;
  }
  times.print(std::to_string(in_sight) + " panels in sight, 2560x1440, a run streaming in");
  std::printf("  %zu points in %.1f s; drawing took %.1f %% of a core, reading the run %.1f %%\n", points,
              passed / 1e3, 100 * frames / passed, 100 * (all - frames) / passed);
  desktop.shell().runs().stop();
}

// As many points as in an hour (or in the first five minutes of it), as fast as they are read.
void memory_of_a_long_run(const char* program, bool whole_hour) {
  const std::int64_t points = static_cast<std::int64_t>(kPointsPerSecond) * (whole_hour ? 3600 : 300);
  tests::NullDesktop desktop(tests::small_scenario(), {1600, 1000}, {}, program);
  desktop.settle_studies();
  play(desktop, "points:" + std::to_string(points));
  const app::gui::Runs& runs = desktop.shell().runs();
  double early = 0;
  int frames = 0;
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    desktop.frame();
    ++frames;
    const auto seen = static_cast<std::int64_t>(runs.of(sim::Task::train).loss.size());
    if (early == 0 && seen >= points / 10) early = resident_mib();
  } while (runs.of(sim::Task::train).active());
  std::printf("memory after %lld points: %.1f MiB, after %lld: %.1f MiB (%d frames)\n",
              static_cast<long long>(points / 10), early,
              static_cast<long long>(runs.of(sim::Task::train).loss.size()), resident_mib(), frames);
}

// What a window does that nobody touches, on a clock of its own.
void idle() {
  tests::NullDesktop desktop;
  desktop.settle_studies();
  desktop.live(5);
  constexpr double kMinute = 60;
  const std::size_t before = desktop.shell().frames_drawn();
  const double begin = thread_milliseconds();
  desktop.live(kMinute);
  std::printf("idle for a minute: %zu frames, %.4f %% of a core\n", desktop.shell().frames_drawn() - before,
              (thread_milliseconds() - begin) / (kMinute * 1e3) * 100);
}

// Three curves of a million points each.
void long_series() {
  constexpr int kPoints = 1000000;
  tests::NullDesktop desktop(tests::small_scenario(), {1920, 1080});
  sim::Report measured = sim::predict(tests::small_scenario());
  measured.source.kind = sim::ReportKind::measured;
  for (int i = 1; i <= kPoints; ++i)
    measured.steps.push_back(
        {i, 10.0 / i + 0.001 * (i % 13), 1.0 + 0.1 * (i % 5), sim::Seconds{0.1 + 0.01 * (i % 7)}, 4096});
  const double begin = process_milliseconds();
  desktop.shell().show_measured(measured);
  std::printf("taking %d steps in: %.0f ms\n", kPoints, process_milliseconds() - begin);
  desktop.shell().commands().invoke("maximise.live");
  desktop.settle_studies();
  print_frames("Live run, loss, gradient norm and rate of a million steps", desktop);
}

void long_tables() {
  constexpr int kRows = 10000;
  tests::NullDesktop desktop(tests::small_scenario(), {1920, 1080});
  sim::Report measured = sim::predict(tests::small_scenario());
  measured.source.kind = sim::ReportKind::measured;
  const std::vector<sim::Row> some = measured.rows;
  for (std::size_t i = 0; measured.rows.size() < kRows + kRows / 10; ++i) {
    sim::Row row = some[i % some.size()];
    row.id += "." + std::to_string(i);
    row.duration = row.duration * (0.5 + 0.001 * static_cast<double>(i % 997));
    measured.rows.push_back(std::move(row));
  }
  desktop.shell().show_measured(measured);
  desktop.shell().commands().invoke("maximise.compare");
  desktop.settle_studies();
  const auto figures = desktop.shell().figures("compare");
  const std::size_t rows = std::get<app::gui::FigureTable>(figures.front().figures.front().data).rows.size();
  print_frames("Predicted and measured, a table of " + std::to_string(rows) + " rows", desktop);
}

sim::Scenario deep_pipeline() {
  sim::Scenario deep = sim::load_scenario_preset("train-llama-3.1-405b-16384-h100");
  deep.strategy = {};
  deep.strategy.tensor_parallel = 8;
  deep.strategy.pipeline_parallel = 64;
  deep.workload.global_batch_size = 800;
  return deep;
}

void long_timeline() {
  tests::NullDesktop desktop(deep_pipeline(), {1920, 1080});
  desktop.shell().commands().invoke("maximise.pipeline");
  desktop.settle_studies();
  std::size_t slots = 0;
  for (const app::gui::PanelFigures& of : desktop.shell().figures("pipeline"))
    for (const app::gui::Figure& figure : of.figures)
      if (const auto* timeline = std::get_if<app::gui::FigureTimeline>(&figure.data))
        slots = std::max(slots, timeline->spans.size());
  print_frames("Pipeline, " + std::to_string(slots) + " slots of 64 stages", desktop);
}

// A sweep as a slider's change asks for it: until the points of the new scenario are drawn.
void sweeps() {
  sim::Scenario scenario = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  tests::NullDesktop desktop(scenario, {1920, 1080});
  auto& state = desktop.state<app::gui::SweepState>();
  state.field = "workload.seq_len";
  state.by = "workload.global_batch_size";
  desktop.shell().commands().invoke("maximise.sweep");
  desktop.settle_studies();
  std::vector<double> drawn, predicted, processor;
  std::size_t points = 0;
  for (int i = 0; i < 20; ++i) {
    scenario.workload.seq_len = 8192 - 512 * (i % 2 + 1);
    const double begin = process_milliseconds();
    const auto clock = std::chrono::steady_clock::now();
    const auto passed = [&] {
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - clock).count();
    };
    desktop.shell().document().edit("sequence", scenario);
    desktop.frame();
    double first = 0;
    while (!(state.study.request().scenario == scenario) || state.study.progress().running) {
      std::this_thread::sleep_for(std::chrono::milliseconds(4));
      desktop.frame();
      if (first == 0 && state.study.request().scenario == scenario) first = passed();
    }
    drawn.push_back(first == 0 ? passed() : first);
    predicted.push_back(passed());
    processor.push_back(process_milliseconds() - begin);
    points = 0;
    for (const app::gui::SweepCurve& curve : state.study.result()->curves) points += curve.points.size();
  }
  for (std::vector<double>* all : {&drawn, &predicted, &processor}) std::sort(all->begin(), all->end());
  const std::size_t middle = drawn.size() / 2;
  std::printf(
      "sweep of %zu scenarios redrawn: median %.0f ms, slowest %.0f ms%s; each predicted in full after %.0f "
      "ms "
      "(%.0f ms of processor time)\n",
      points, drawn[middle], drawn.back(), drawn[middle] > kSweepAim ? "  MISSED" : "", predicted[middle],
      processor[middle]);
}

// Each panel alone, over the whole window.
void each_panel(const char* what, const sim::Scenario& scenario) {
  tests::NullDesktop desktop(scenario, {1920, 1080});
  desktop.settle();
  // A search of tens of thousands of candidates: of them 2,000 are drawn.
  app::gui::PlannerChoices& choices = desktop.state<app::gui::PlannerState>().choices;
  choices.pipeline = choices.context = choices.sharding = choices.micro_batch = false;
  desktop.shell().commands().invoke("planner.search");
  std::printf("%s, a panel over the whole window:\n", what);
  for (const app::gui::PanelEntry* panel : app::gui::panels()) {
    desktop.shell().commands().invoke(std::string("maximise.") + panel->id);
    desktop.settle_studies();
    desktop.frames(10);
    print_frames(std::string("  ") + panel->id, desktop);
  }
}

// The desktop as it first starts, while the mouse goes over it: what browser_frame.py does in the page, there
// too at 1280x800. One frame after the other, and as a screen asks for them: between those the caches are
// others'.
void mouse() {
  tests::NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-8b-8-h100"), {1280, 800});
  desktop.settle_studies();
  for (const bool paced : {false, true}) {
    FrameTimes times;
    for (int pass = 0; pass < 5; ++pass)
      for (float x = 300; x < 900; x += 10) {
        ImGui::GetIO().AddMousePosEvent(x, 500);
        if (paced) std::this_thread::sleep_for(std::chrono::duration<double>(1.0 / kFramesPerSecond));
        times.frame(desktop);
      }
    times.print(std::string("the desktop as it first starts, 1280x800, under the mouse") +
                (paced ? ", 60 a second" : ""));
  }
}

// Tables of measurements in the validation panel.
void validation_panel(const std::vector<std::string>& files) {
  tests::NullDesktop desktop(tests::small_scenario(), {1920, 1080});
  for (const std::string& file : files) {
    desktop.shell().open(file);
    desktop.shell().wait_for_studies();
    desktop.shell().commands().invoke("maximise.validation");
    desktop.frames(10);
    print_frames("validation of " + file, desktop);
  }
}

}  // namespace

// Arguments: names of parts (none: all), "hour" for memory over as many points as an hour has, and tables of
// measurements. It is the process of its runs, too, as the desktop starts them: "replay seconds:15".
int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "replay" && arguments.size() > 1) {
    const std::string& what = arguments[1];
    const std::string number = what.substr(what.find(':') + 1);
    return what.starts_with("seconds:") ? write_steps(std::atof(number.c_str()), 0)
                                        : write_steps(0, std::atoll(number.c_str()));
  }
  if (!arguments.empty() && arguments[0] == "doctor") return 1;
  const auto asked = [&](std::string_view part) {
    return std::find(arguments.begin(), arguments.end(), part) != arguments.end();
  };
  const auto wanted = [&](std::string_view part) { return arguments.empty() || asked(part); };
  std::printf("aims: a frame %.0f ms in the median, %.0f ms at the 99th percentile; a sweep %.0f ms\n",
              kMedianAim, kSlowAim, kSweepAim);
  if (wanted("mouse")) mouse();
  if (wanted("streaming")) streaming("/proc/self/exe");
  if (wanted("timeline")) long_timeline();
  if (wanted("tables")) long_tables();
  if (wanted("series")) long_series();
  if (wanted("sweeps")) sweeps();
  if (wanted("idle")) idle();
  if (wanted("memory")) memory_of_a_long_run("/proc/self/exe", false);
  if (asked("hour")) memory_of_a_long_run("/proc/self/exe", true);
  if (wanted("panels")) {
    each_panel("405B on 16,384 GPUs", sim::load_scenario_preset("train-llama-3.1-405b-16384-h100"));
    each_panel("64 stages by 800 micro-batches", deep_pipeline());
  }
  std::vector<std::string> tables;
  for (const std::string& argument : arguments)
    if (argument.ends_with(".csv")) tables.push_back(argument);
  validation_panel(tables);
}
