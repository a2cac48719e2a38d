#include "app/gui/panels/pipeline_operations.h"

#include <implot.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>

#include "app/gui/panels/step_axis.h"
#include "app/gui/widgets/gantt.h"
#include "app/gui/widgets/plot.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/plan/ranks.h"

namespace app::gui {
namespace {

using Context = ContextWith<PipelineState>;

constexpr float kLeastBar = 2;         // pixels; what is narrower is merged
constexpr std::size_t kMostRanks = 4;  // of a stage
constexpr std::array<const char*, sim::kStreams> kStreamWords = {"",          ", collectives", ", sends",
                                                                 ", to host", ", from host",   ", host"};

std::size_t pass_of(sim::Phase phase) {
  switch (phase) {
    case sim::Phase::backward:
      return 1;
    case sim::Phase::recompute:
      return 3;
    case sim::Phase::optimizer:
      return 4;
    default:
      return 0;
  }
}

const sim::OperationName& name_of(const OperationLane& lane, const sim::OperationSpan& span) {
  return lane.of->of_rank[lane.rank].names[static_cast<std::size_t>(span.name)];
}

// A lane for each stream of a rank that has operations.
void add_lanes(std::vector<OperationLane>& lanes, const std::shared_ptr<const RankOperations>& of,
               std::size_t rank, const std::string& label, bool measured) {
  std::array<std::vector<sim::OperationSpan>, sim::kStreams> of_stream;
  for (const sim::OperationSpan& span : of->of_rank[rank].spans)
    if (span.end > span.start && span.stream >= 0 && span.stream < sim::kStreams)
      of_stream[static_cast<std::size_t>(span.stream)].push_back(span);
  for (std::size_t stream = 0; stream < of_stream.size(); ++stream) {
    std::vector<sim::OperationSpan>& spans = of_stream[stream];
    if (spans.empty()) continue;
    std::stable_sort(spans.begin(), spans.end(),
                     [](const auto& a, const auto& b) { return a.start < b.start; });
    lanes.push_back({label + kStreamWords[stream], measured, rank, of, std::move(spans)});
  }
}

// What a stage is predicted to wait for.
RankTracks tracks_of_prediction(const StepView& step) {
  RankTracks tracks{0, {}, step.duration};
  for (int stage = 0; stage < step.stages; ++stage) {
    const auto slots = step.slots_of(stage);
    tracks.of_rank.emplace_back(slots.begin(), slots.end());
  }
  return tracks;
}

// Found once for each prediction, stage and step that is told.
const OperationLanes& lanes_of(const Context& context, const std::shared_ptr<const RankOperations>& measured,
                               const RankTracks* tracks) {
  PipelineState& scope = context.state;
  const StepView& step = *context.prediction.step;
  OperationLanes& lanes = scope.operations;
  if (lanes.predicted == step.operations && lanes.measured == measured && lanes.stage == scope.stage)
    return lanes;
  lanes = {step.operations, measured, scope.stage, {}, {}, {}};
  const auto stage = static_cast<std::size_t>(scope.stage);
  if (step.operations && stage < step.operations->of_rank.size()) {
    const RankTracks predicted = tracks_of_prediction(step);
    add_lanes(lanes.lanes, step.operations, stage, "predicted", false);
    lanes.predicted_gaps = gaps_of(*step.operations, &predicted);
  }
  if (!measured) return lanes;
  const sim::Strategy& strategy = context.prediction.scenario.strategy;
  std::size_t shown = 0;
  for (std::size_t rank = 0; rank < measured->of_rank.size() && shown < kMostRanks; ++rank) {
    const bool alone = measured->of_rank.size() == 1;
    if (!alone && sim::place_of_rank(strategy, static_cast<std::int32_t>(rank)).pipeline != scope.stage)
      continue;
    add_lanes(lanes.lanes, measured, rank, alone ? "measured" : "rank " + std::to_string(rank), true);
    ++shown;
  }
  lanes.measured_gaps = gaps_of(*measured, tracks);
  return lanes;
}

const sim::OperationSpan* span_at(const OperationLane& lane, double time) {
  const auto after = std::upper_bound(lane.spans.begin(), lane.spans.end(), time,
                                      [](double t, const auto& span) { return t < span.start.value; });
  if (after == lane.spans.begin() || !(time < (after - 1)->end.value)) return nullptr;
  return &*(after - 1);
}

// The same execution in a lane of the other kind; null: none.
const sim::OperationSpan* counterpart(const OperationLanes& lanes, const OperationLane& lane,
                                      const sim::OperationSpan& span) {
  for (const OperationLane& other : lanes.lanes) {
    if (other.measured == lane.measured) continue;
    for (const sim::OperationSpan& one : other.spans)
      if (one.layer == span.layer && one.micro_batch == span.micro_batch &&
          name_of(other, one) == name_of(lane, span))
        return &one;
  }
  return nullptr;
}

void describe(const Look& look, const OperationLanes& lanes, const OperationLane& lane,
              const sim::OperationSpan& span) {
  const Palette& c = look.color();
  ImGui::BeginTooltip();
  const sim::OperationName& name = name_of(lane, span);
  text(look, TextRole::title, c.text, name.id);
  text(look, TextRole::caption, c.dim,
       std::string(sim::name(name.phase)) + ", layer " + std::to_string(span.layer) + ", micro-batch " +
           std::to_string(span.micro_batch));
  const auto say = [&](bool measured, const sim::OperationSpan& one) {
    text(look, TextRole::number, measured ? c.measured : c.predicted,
         std::string(measured ? "measured " : "predicted ") + sim::format(one.end - one.start) + ", from " +
             sim::format(one.start));
  };
  say(lane.measured, span);
  if (const sim::OperationSpan* const other = counterpart(lanes, lane, span)) say(!lane.measured, *other);
  ImGui::EndTooltip();
}

void draw_lane(const Look& look, const OperationLane& lane, const Frame& frame, float top, float bottom) {
  const Palette& c = look.color();
  ImDrawList* const list = ImPlot::GetPlotDrawList();
  std::vector<Bar> bars;
  merge_bars(
      std::span<const sim::OperationSpan>(lane.spans), frame.begin, frame.end, kLeastBar,
      [&](double seconds) { return frame.x(seconds); },
      [&](const sim::OperationSpan& span, float width, BarKinds& kinds) {
        kinds[pass_of(name_of(lane, span).phase)] += width;
      },
      bars);
  for (const Bar& bar : bars) {
    const ImVec2 least = {std::max(bar.begin, frame.left - 4), top};
    if (bar.index == kMerged) {
      const auto most = static_cast<std::size_t>(
          std::max_element(bar.kinds.begin(), bar.kinds.begin() + kPasses) - bar.kinds.begin());
      list->AddRectFilled(least, {bar.end, bottom}, with_alpha(c.passes[most], bar.filled));
      continue;
    }
    const sim::OperationSpan& span = lane.spans[bar.index];
    const sim::OperationName& name = name_of(lane, span);
    const ImU32 color = c.passes[pass_of(name.phase)];
    const ImVec2 most = {
        std::min(bar.end - (bar.end - bar.begin > look.px(4) ? 1.0f : 0.0f), frame.right + 4), bottom};
    if (most.x <= least.x) continue;
    list->AddRectFilled(least, most, color, std::min(look.px(2), (most.x - least.x) / 3));
    const float left = std::max(least.x, frame.left), right = std::min(most.x, frame.right);
    if (right - left < look.px(36) || bottom - top < look.px(12)) continue;
    draw_text(list, look, TextRole::caption, {(left + right) / 2, (top + bottom) / 2}, text_on(color),
              fitted(look, TextRole::caption, name.id, right - left - look.px(6)), {0.5f, 0.5f});
  }
}

void draw_gaps(const Look& look, const std::vector<TrackGap>& gaps, const OperationLane& lane,
               const Frame& frame, float top, float bottom) {
  const ImVec2 mouse = ImGui::GetMousePos();
  for (const TrackGap& gap : gaps) {
    if (gap.rank != lane.rank) continue;
    const float left = std::max(frame.left, frame.x(gap.begin.value)),
                right = std::min(frame.right, frame.x(gap.end.value));
    if (right - left < 1) continue;
    const std::string words = "waits for " + gap.why, time = sim::format(gap.length());
    for (const std::string& shown : {words + ", " + time, words, time}) {
      if (text_size_of(look, TextRole::caption, shown).x > right - left - look.px(6)) continue;
      draw_text(ImPlot::GetPlotDrawList(), look, TextRole::caption, {(left + right) / 2, (top + bottom) / 2},
                look.color().dim, shown, {0.5f, 0.5f});
      break;
    }
    if (ImPlot::IsPlotHovered() && mouse.x >= left && mouse.x < right && mouse.y >= top && mouse.y < bottom)
      ImGui::SetTooltip("%s: nothing for %s:\n%s", lane.label.c_str(), time.c_str(), words.c_str());
  }
}

FigureTimeline timeline_of(const Look& look, const OperationLanes& lanes, bool measured) {
  FigureTimeline timeline;
  for (const OperationLane& lane : lanes.lanes) {
    if (lane.measured != measured) continue;
    for (const sim::OperationSpan& span : lane.spans) {
      const sim::OperationName& name = name_of(lane, span);
      timeline.spans.push_back({timeline.rows.size(),
                                name.id + ", layer " + std::to_string(span.layer) + ", micro-batch " +
                                    std::to_string(span.micro_batch),
                                std::string(sim::name(name.phase)), look.color().passes[pass_of(name.phase)],
                                span.start.value, span.end.value});
    }
    timeline.rows.push_back(lane.label);
  }
  return timeline;
}

}  // namespace

void draw_operations(const Context& context, const std::shared_ptr<const RankOperations>& measured,
                     const RankTracks* tracks, const ScaleUnit& time, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  PipelineState& scope = context.state;
  const OperationLanes& lanes = lanes_of(context, measured, tracks);
  const float begin = ImGui::GetCursorPosY();
  std::string words = "Stage " + std::to_string(scope.stage) + ", each operation; the wheel zooms";
  if (!lanes.predicted)
    words = "The prediction has too many operations to show them one by one: fewer layers or micro-batches";
  if (measured)
    words += "; measured: step " + sim::format_count(measured->step) + " on " +
             context.run().measured->source.device;
  else
    words += "; Start measures them";
  text_fitted(look, TextRole::caption, c.dim, words, size.x);
  if (lanes.lanes.empty()) return;
  const auto rows = static_cast<int>(lanes.lanes.size());
  const float height = std::max(look.px(30), size.y - (ImGui::GetCursorPosY() - begin));
  constexpr ImPlotFlags flags = ImPlotFlags_CanvasOnly | ImPlotFlags_NoFrame;
  if (!ImPlot::BeginPlot("##operations", {size.x, height}, flags)) return;
  set_up_time(scope, time, false);
  ImPlot::SetupAxis(ImAxis_Y1, nullptr,
                    ImPlotAxisFlags_Invert | ImPlotAxisFlags_Lock | ImPlotAxisFlags_NoHighlight |
                        ImPlotAxisFlags_NoGridLines | ImPlotAxisFlags_NoTickMarks);
  ImPlot::SetupAxisLimits(ImAxis_Y1, -0.5, rows - 0.5, ImPlotCond_Always);
  std::vector<double> ticks;
  std::vector<const char*> labels;
  for (const OperationLane& lane : lanes.lanes) {
    ticks.push_back(static_cast<double>(ticks.size()));
    labels.push_back(lane.label.c_str());
  }
  ImPlot::SetupAxisTicks(ImAxis_Y1, ticks.data(), rows, labels.data());
  ImPlot::PushPlotClipRect();
  const Frame frame = frame_of_plot(rows);
  const float end = frame.top + frame.row * static_cast<float>(rows);
  const float inset = frame.row >= look.px(12) ? std::floor(look.px(3)) : 0;
  const OperationLane* hovered = nullptr;
  for (std::size_t i = 0; i < lanes.lanes.size(); ++i) {
    const OperationLane& lane = lanes.lanes[i];
    const float top = frame.top + frame.row * static_cast<float>(i) + inset,
                bottom = top + frame.row - 2 * inset;
    ImPlot::GetPlotDrawList()->AddRectFilled({frame.left, top}, {frame.right, bottom}, c.raised);
    draw_lane(look, lane, frame, top, bottom);
    const bool has_compute = lane.spans.front().stream == sim::kComputeStream;
    if (has_compute)
      draw_gaps(look, lane.measured ? lanes.measured_gaps : lanes.predicted_gaps, lane, frame, top, bottom);
    if (ImPlot::IsPlotHovered() && ImGui::GetMousePos().y >= top && ImGui::GetMousePos().y < bottom)
      hovered = &lane;
  }
  draw_cursor(look, frame, scope.cursor, end);
  ImPlot::PopPlotClipRect();
  take_hand(scope);
  if (ImPlot::IsPlotHovered() && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) {
    scope.begin = 0;
    scope.end = scope.duration;
  }
  ImPlot::EndPlot();
  if (!hovered) return;
  if (const sim::OperationSpan* const span = span_at(*hovered, scope.cursor))
    describe(look, lanes, *hovered, *span);
}

std::vector<Figure> operation_figures(const Context& context,
                                      const std::shared_ptr<const RankOperations>& measured,
                                      const RankTracks* tracks) {
  const OperationLanes& lanes = lanes_of(context, measured, tracks);
  std::vector<Figure> all;
  for (const bool is_measured : {false, true}) {
    FigureTimeline timeline = timeline_of(context.look, lanes, is_measured);
    const PipelineState& scope = context.state;
    if ((scope.begin > 0 || scope.end < scope.duration) && scope.end > scope.begin)
      timeline.seen = FigureRange{scope.begin, scope.end};
    if (!timeline.rows.empty())
      all.push_back({is_measured ? "Operations, measured" : "Operations, predicted", std::move(timeline)});
  }
  if (measured) {
    FigureTable gaps{
        {{"rank", Measure::count}, {"begins", Measure::seconds}, {"lasts", Measure::seconds}, {"waits for"}},
        {}};
    for (const TrackGap& gap : lanes.measured_gaps)
      gaps.rows.push_back({static_cast<double>(gap.rank), gap.begin.value, gap.length().value, gap.why});
    all.push_back({"Gaps between measured operations", std::move(gaps)});
  }
  return all;
}

}  // namespace app::gui
