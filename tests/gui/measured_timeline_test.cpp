// What a measured step is drawn with: gaps with their causes, and what the machine says of itself.
#include <algorithm>
#include <cmath>

#include "app/gui/jobs/track_gaps.h"
#include "app/gui/panels/pipeline.h"
#include "sim/cost/predict.h"
#include "sim/plan/plan.h"
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

TEST_CASE(
    "operations and gaps of a rank fill its step, and a gap within a wait is named by what it waits for") {
  const RankTracks tracks = two_stages();
  RankOperations operations{1, {}, tracks.duration + sim::Seconds{0.5}};
  for (const auto& slots : tracks.of_rank) {
    sim::OperationTimeline& timeline = operations.of_rank.emplace_back();
    timeline.names = {{"first", sim::Phase::forward}, {"second", sim::Phase::forward}};
    for (const sim::TimelineSlot& one : slots) {
      const sim::Seconds half = (one.end - one.start) * 0.5;
      // The host is late for the second of each pair.
      timeline.spans.push_back({0, 0, one.micro_batch, 0, one.start, one.start + half});
      timeline.spans.push_back({1, 0, one.micro_batch, 0, one.start + half * 1.5, one.end});
    }
  }
  const std::vector<TrackGap> gaps = gaps_of(operations, &tracks, 0);
  std::vector<double> whole(operations.of_rank.size());
  for (std::size_t rank = 0; rank < whole.size(); ++rank)
    for (const sim::OperationSpan& span : operations.of_rank[rank].spans)
      whole[rank] += (span.end - span.start).value;
  for (const TrackGap& gap : gaps) whole[gap.rank] += gap.length().value;
  for (const double one : whole) CHECK(one == Approx(operations.duration.value));
  const auto why = [&](std::size_t rank, double begin) {
    for (const TrackGap& gap : gaps)
      if (gap.rank == rank && std::abs(gap.begin.value - begin) < 1e-9) return gap.why;
    return std::string("no gap");
  };
  CHECK(why(0, 2) == "backward of micro-batch 0 on stage 1");
  CHECK(why(0, 0.5) == "the host, before second");
  CHECK(why(0, 7) == "the host: the batch, the loss, the report");
}

TEST_CASE("a step's operations stand one by one, measured beneath predicted, from a run's events alone") {
  const sim::Scenario scenario = tests::small_scenario();
  NullDesktop desktop(scenario);
  desktop.settle();
  desktop.state<PipelineState>().view = PipelineView::operations;
  desktop.shell().view().maximised = "pipeline";
  desktop.settle();
  const auto timelines = [&] {
    std::vector<Figure> found;
    for (const PanelFigures& panel : desktop.shell().figures("pipeline"))
      for (const Figure& figure : panel.figures)
        if (std::holds_alternative<FigureTimeline>(figure.data)) found.push_back(figure);
    return found;
  };
  const std::vector<Figure> predicted = timelines();
  REQUIRE(predicted.size() == 1);
  const auto& spans = std::get<FigureTimeline>(predicted.front().data).spans;
  std::size_t planned = 0;
  const sim::Plan plan = sim::make_plan(scenario);
  for (const sim::Action& action : plan.programs.front().actions)
    planned += plan.blocks[static_cast<std::size_t>(action.block)].operations.size();
  // Those that another's kernel carries out take no time of their own.
  CHECK(spans.size() > planned / 2);
  CHECK(spans.size() <= planned);

  sim::Report report = sim::predict(scenario);
  report.source.kind = sim::ReportKind::recorded;
  std::vector<sim::Event> events = sim::events_of(report);
  sim::OperationTimelineEvent told{7, 0, 1, {0.5}, {{{"an.operation", sim::Phase::forward}}, {}}};
  told.timeline.spans = {{0, 3, 1, 0, {0.1}, {0.2}}, {0, 4, 1, 0, {0.4}, {0.45}}};
  events.insert(events.end() - 1, told);
  desktop.shell().show_measured(events);
  desktop.settle();
  const std::vector<Figure> both = timelines();
  REQUIRE(both.size() == 2);
  const auto& measured = std::get<FigureTimeline>(both.back().data);
  CHECK(measured.rows == std::vector<std::string>{"measured"});
  REQUIRE(measured.spans.size() == 2);
  CHECK(measured.spans.front().name == "an.operation, layer 3, micro-batch 1");
  CHECK(measured.spans.back().end == 0.45);
  CHECK(desktop.says("waits for the host, before an.operation"));
}

TEST_CASE("memory of the first four measured steps stands over the predicted ones, each where it began") {
  const sim::Scenario scenario = tests::small_scenario();
  NullDesktop desktop(scenario);
  desktop.settle();
  sim::Report report = sim::predict(scenario);
  report.source.kind = sim::ReportKind::measured;
  std::vector<sim::Event> events = sim::events_of(report);
  for (int i = 0; i < 4; ++i) {
    sim::StepMemoryEvent step{i + 1, {i * 2.0}, {1.5}, sim::Bytes{5000 + i}, {}};
    for (const double at : {0.0, 1.0}) {
      sim::MemoryTimePoint point{{at}, {}};
      point.bytes[0] = sim::Bytes{1000 * (i + 1)};
      step.points.push_back(point);
    }
    events.insert(events.end() - 1, step);
  }
  desktop.shell().show_measured(events);
  desktop.settle();
  REQUIRE(desktop.shell().runs().of(sim::Task::train).first_steps);
  REQUIRE(desktop.shell().runs().of(sim::Task::train).measured->source.scenario == scenario);
  const std::vector<PanelFigures> panels = desktop.shell().figures("memory");
  const auto& figures = panels.front().figures;
  const auto figure = std::find_if(figures.begin(), figures.end(), [](const Figure& one) {
    return one.title == "Memory of the first four steps";
  });
  REQUIRE(figure != figures.end());
  const auto& curves = std::get<FigurePlot>(figure->data).curves;
  const auto measured = std::find_if(curves.begin(), curves.end(),
                                     [](const FigureCurve& one) { return one.name == "measured"; });
  REQUIRE(measured != curves.end());
  REQUIRE(measured->points.size() == 8);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(measured->points[2 * i].x == Approx(2.0 * static_cast<double>(i)));
    CHECK(measured->points[2 * i].y == 1000.0 * static_cast<double>(i + 1));
  }
  const FigureCurve& in_use = curves.back();
  REQUIRE(in_use.points.size() == 4);
  CHECK(in_use.points[3].y == 5003);
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
