// UI work a frame on the null backend, all panels open, while a run streams ten thousand steps into the live
// panel: the median and the 99th percentile of building the draw lists.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "app/gui/jobs/run_state.h"
#include "sim/cost/predict.h"
#include "tests/gui/null_desktop.h"

int main() {
  using Clock = std::chrono::steady_clock;
  constexpr int kSteps = 10000, kFrames = 1000;
  tests::NullDesktop desktop;
  sim::Report measured = sim::predict(tests::small_scenario());
  measured.source.kind = sim::ReportKind::measured;
  for (int i = 1; i <= kSteps; ++i)
    measured.steps.push_back({i, 10.0 / i, 1.0, sim::Seconds{0.1 + 0.01 * (i % 7)}, 4096});
  const auto fold_begin = Clock::now();
  desktop.shell().show_measured(measured);
  const double fold = std::chrono::duration<double, std::milli>(Clock::now() - fold_begin).count();
  desktop.frames(20);
  std::vector<double> milliseconds;
  for (int i = 0; i < kFrames; ++i) {
    const auto begin = Clock::now();
    desktop.frame();
    milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf(
      "folding %d steps: %.1f ms\nframe, all panels open, %d points: median %.2f ms, 99th percentile %.2f "
      "ms\n",
      kSteps, fold, kSteps, milliseconds[kFrames / 2], milliseconds[kFrames * 99 / 100]);
}
