// What a measured step is drawn with: gaps with their causes, and what the machine says of itself.
#include <algorithm>

#include "app/gui/jobs/track_gaps.h"
#include "sim/cost/predict.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;
using tests::NullDesktop;

namespace {

sim::TimelineSlot slot(int stage, sim::Phase phase, int micro_batch, double start, double end) {
  sim::TimelineSlot one;
  one.stage = stage;
  one.phase = phase;
  one.micro_batch = micro_batch;
  one.start = {start};
  one.end = {end};
  return one;
}

// Two stages, two micro-batches, forward and backward of one second each; the optimizer waits for stage 0.
RankTracks two_stages() {
  using P = sim::Phase;
  RankTracks tracks;
  tracks.of_rank = {
      {slot(0, P::forward, 0, 0, 1), slot(0, P::forward, 1, 1, 2), slot(0, P::backward, 0, 3, 4),
       slot(0, P::backward, 1, 5, 6), slot(0, P::optimizer, 0, 6, 7)},
      {slot(1, P::forward, 0, 1, 2), slot(1, P::backward, 0, 2, 3), slot(1, P::forward, 1, 3, 4),
       slot(1, P::backward, 1, 4, 5), slot(1, P::optimizer, 0, 6, 7)}};
  tracks.duration = {7};
  return tracks;
}

}  // namespace

TEST_CASE("each gap of a measured step is named by the pass that ended it") {
  const std::vector<TrackGap> gaps = gaps_of(two_stages());
  const auto why = [&](std::size_t rank, double begin) {
    for (const TrackGap& gap : gaps)
      if (gap.rank == rank && gap.begin.value == begin) return gap.why;
    return std::string("no gap");
  };
  CHECK(why(0, 2) == "backward of micro-batch 0 on stage 1");
  CHECK(why(0, 4) == "backward of micro-batch 1 on stage 1");
  CHECK(why(1, 0) == "forward of micro-batch 0 on stage 0");
  CHECK(why(1, 5) == "rank 0, to reduce gradients: its backward of micro-batch 1");
  CHECK(gaps.size() == 4);
}

TEST_CASE("passes and gaps of a rank fill the step, whatever the passes are") {
  RankTracks tracks = two_stages();
  for (int i = 0; i < 50; ++i) {
    for (auto& slots : tracks.of_rank) {
      double now = 0;
      for (sim::TimelineSlot& one : slots) {
        const double length = one.end.value - one.start.value;
        one.start.value = now + 0.1 * ((i * 7 + one.micro_batch * 3 + one.stage) % 5);
        now = one.end.value = one.start.value + length * (1 + 0.01 * i);
      }
      tracks.duration = std::max(tracks.duration, sim::Seconds{now});
    }
    std::vector<double> whole(tracks.of_rank.size());
    for (const TrackGap& gap : gaps_of(tracks, 0)) {
      CHECK(gap.length().value > 0);
      whole[gap.rank] += gap.length().value;
    }
    for (std::size_t rank = 0; rank < whole.size(); ++rank) {
      for (const sim::TimelineSlot& one : tracks.of_rank[rank])
        whole[rank] += one.end.value - one.start.value;
      CHECK(whole[rank] == Approx(tracks.duration.value));
    }
  }
}

TEST_CASE("power and clock stand in Live run where the driver tells them, with what holds the clock back") {
  sim::Report run = sim::predict(tests::small_scenario());
  run.source.kind = sim::ReportKind::measured;
  for (int i = 1; i <= 20; ++i) run.steps.push_back({i, 5.0 / i, 1.0, sim::Seconds{0.5}, 4096});
  for (int i = 0; i < 20; ++i)
    run.device_samples.push_back(
        {sim::Seconds{0.5 * i}, 1755.0 - i, 2619, 650.0 + i, 60, i > 10 ? "power cap" : ""});
  NullDesktop desktop;
  desktop.shell().view().maximised = "live";
  desktop.shell().show_measured(run);
  desktop.settle();
  CHECK(desktop.says("669 W"));
  CHECK(desktop.says("1,736 MHz"));
  CHECK(desktop.says("held back by power cap"));
  run.device_samples.clear();
  desktop.shell().show_measured(run);
  desktop.settle();
  CHECK_FALSE(desktop.says("MHz"));
}

TEST_CASE("memory over time is of the first four steps where the first one begins with less") {
  sim::Scenario scenario = tests::small_scenario();
  scenario.implementation = sim::load_implementation_preset("pytorch_eager");  // gradients come with backward
  NullDesktop desktop(scenario);
  desktop.settle();
  const std::vector<PanelFigures> panels = desktop.shell().figures("memory");
  REQUIRE(panels.size() == 1);
  const auto& all = panels.front().figures;
  const auto figure = std::find_if(all.begin(), all.end(), [](const Figure& one) {
    return one.title == "Memory of the first four steps";
  });
  REQUIRE(figure != all.end());
  const auto& plot = std::get<FigurePlot>(figure->data);
  // What is live at the beginning of each step: the upper edge of the stack.
  const auto at = [&](double time) {
    double sum = 0;
    for (const FigureCurve& curve : plot.curves)
      for (const FigurePoint& point : curve.points)
        if (point.x >= time) {
          sum += point.y - point.low;
          break;
        }
    return sum;
  };
  const double end = plot.curves.front().points.back().x, step = end / 4;
  CHECK(step > 0);
  CHECK(at(0) < at(1.001 * step));
  CHECK(at(1.001 * step) == Approx(at(2.001 * step)));
  CHECK(at(2.001 * step) == Approx(at(3.001 * step)));
}
