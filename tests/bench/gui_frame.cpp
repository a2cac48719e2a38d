// UI work a frame on the null backend: the median and the 99th percentile of the processor time of building
// the draw lists. All panels open, while a run streams ten thousand steps into the live panel; then each
// alone, of large scenarios.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "app/gui/jobs/run_state.h"
#include "app/gui/panels/planner.h"
#include "sim/cost/predict.h"
#include "tests/gui/null_desktop.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kFrames = 1000;

struct FrameTimes {
  double median = 0, p99 = 0;  // milliseconds
};

// Processor time of this thread: what others do on the machine does not count.
double thread_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

FrameTimes time_frames(tests::NullDesktop& desktop, int frames) {
  std::vector<double> milliseconds;
  for (int i = 0; i < frames; ++i) {
    const double begin = thread_milliseconds();
    desktop.frame();
    milliseconds.push_back(thread_milliseconds() - begin);
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const std::size_t n = milliseconds.size();
  return {milliseconds[n / 2], milliseconds[n * 99 / 100]};
}

void all_panels() {
  constexpr int kSteps = 10000;
  tests::NullDesktop desktop;
  sim::Report measured = sim::predict(tests::small_scenario());
  measured.source.kind = sim::ReportKind::measured;
  for (int i = 1; i <= kSteps; ++i)
    measured.steps.push_back({i, 10.0 / i, 1.0, sim::Seconds{0.1 + 0.01 * (i % 7)}, 4096});
  const auto fold_begin = Clock::now();
  desktop.shell().show_measured(measured);
  const double fold = std::chrono::duration<double, std::milli>(Clock::now() - fold_begin).count();
  desktop.frames(20);
  const FrameTimes times = time_frames(desktop, kFrames);
  std::printf(
      "folding %d steps: %.1f ms\nframe, all panels open, %d points: median %.2f ms, 99th percentile %.2f "
      "ms\n",
      kSteps, fold, kSteps, times.median, times.p99);
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
    const FrameTimes times = time_frames(desktop, kFrames / 5);
    std::printf("  %-14s median %.2f ms, 99th percentile %.2f ms\n", panel->id, times.median, times.p99);
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
    const FrameTimes times = time_frames(desktop, kFrames / 5);
    std::printf("validation of %s: median %.2f ms, 99th percentile %.2f ms\n", file.c_str(), times.median,
                times.p99);
  }
}

}  // namespace

// Arguments: tables of measurements.
int main(int argc, char** argv) {
  all_panels();
  const sim::Scenario llama = sim::load_scenario_preset("train-llama-3.1-405b-16384-h100");
  each_panel("405B on 16,384 GPUs", llama);
  sim::Scenario deep = llama;
  deep.strategy = {};
  deep.strategy.tensor_parallel = 8;
  deep.strategy.pipeline_parallel = 64;
  deep.workload.global_batch_size = 512;
  each_panel("64 stages by 512 micro-batches", deep);
  validation_panel({argv + 1, argv + argc});
}
