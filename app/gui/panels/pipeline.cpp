// A training step over the stages of its pipeline: who runs what when, who waits, and what each holds
// meanwhile.
#include "app/gui/panels/pipeline.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "app/counted.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/panels/pipeline_operations.h"
#include "app/gui/panels/step_axis.h"
#include "app/gui/scenario_fields.h"
#include "app/gui/step_view.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/gantt.h"
#include "app/gui/widgets/legend.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/plot.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/plan/schedule.h"
#include "sim/report/step_parts.h"

namespace app::gui {
namespace {

using Context = ContextWith<PipelineState>;

// What is narrower is merged: pixels, and where rows are so many that they are thin.
constexpr float kLeastBar = 2, kLeastBarOfMany = 3;
constexpr std::size_t kManyRows = 32;
constexpr int kMostMemoryLines = 16;

// What a slot is drawn as.
enum Kind : std::size_t { kForward, kBackward, kWeights, kRecompute, kOptimizer, kKinds };
constexpr std::array<std::string_view, kKinds> kKindNames = {"forward", "backward", "backward of weights",
                                                             "recompute, of its backward pass", "optimizer"};

Kind kind_of(const sim::TimelineSlot& slot) {
  if (slot.phase == sim::Phase::optimizer) return kOptimizer;
  if (slot.phase == sim::Phase::forward) return kForward;
  return slot.weights ? kWeights : kBackward;
}

ImU32 kind_color(const Palette& c, std::size_t kind) {
  static_assert(kKinds == kPasses);
  return c.passes[kind];
}

// Micro-batches in so many hues, forward passes bright and backward passes dark.
constexpr std::size_t kHues = kBarKinds / 2;

std::size_t hue_of(const sim::TimelineSlot& slot, int micro_batches) {
  const auto batches = static_cast<std::size_t>(std::max(micro_batches, 1));
  const std::size_t a_hue = (batches + kHues - 1) / kHues;
  return static_cast<std::size_t>(slot.micro_batch) / a_hue;
}

ImU32 hue_color(const Palette& c, std::size_t hue, bool forward) {
  const float h = 0.58f + 0.8f * static_cast<float>(hue) / static_cast<float>(kHues);
  ImVec4 color = {0, 0, 0, 1};
  ImGui::ColorConvertHSVtoRGB(h - std::floor(h), 0.52f, 0.86f, color.x, color.y, color.z);
  const ImU32 bright = ImGui::ColorConvertFloat4ToU32(color);
  return forward ? bright : mix(bright, c.panel, 0.45f);
}

int micro_batches_of(const sim::Scenario& s) {
  const std::int64_t sequences = s.workload.micro_batch_size * s.strategy.data_parallel;
  return static_cast<int>(sequences > 0 ? s.workload.global_batch_size / sequences : 0);
}

std::string describe(const sim::TimelineSlot& slot, bool chunks) {
  if (kind_of(slot) == kOptimizer) return "optimizer";
  static constexpr std::array<const char*, 3> letters = {"F ", "B ", "W "};
  std::string words = letters[kind_of(slot)] + sim::format_count(slot.micro_batch);
  if (chunks) words += ", chunk " + sim::format_count(slot.chunk);
  return words;
}

void draw_controls(const Context& context) {
  const Look& look = context.look;
  const sim::Strategy& strategy = context.scenario.strategy;
  std::vector<ScheduleChoice> choices;
  std::vector<std::string_view> names;
  std::vector<std::string> refusals;
  for (const std::string_view name : sim::kScheduleNames) {
    names.push_back(name);
    choices.push_back(with_schedule(context.scenario, name));
    refusals.push_back(choices.back().scenario ? "" : choices.back().refusal);
  }
  // 1f1b with chunks is interleaved: both names mean it, and the second says it.
  const std::string now =
      strategy.schedule == "1f1b" && strategy.virtual_pipeline > 1 ? "interleaved" : strategy.schedule;
  const auto current = static_cast<std::size_t>(std::find(names.begin(), names.end(), now) - names.begin());
  if (const auto picked = segmented(look, "schedule", current, names, 0, refusals))
    context.edit("schedule " + strategy.schedule + " \u2192 " + std::string(names[*picked]),
                 *choices[*picked].scenario);
  // Beside what stands before, or below it where the rest of the line is too short for its words.
  const auto beside = [&look](float width) {
    ImGui::SameLine(0, look.px(16));
    if (ImGui::GetContentRegionAvail().x < look.px(width)) ImGui::NewLine();
  };
  beside(180);
  static constexpr std::array<std::string_view, 2> views = {"passes", "operations"};
  if (const auto picked = segmented(look, "view", static_cast<std::size_t>(context.state.view), views))
    context.state.view = static_cast<PipelineView>(*picked);
  if (context.state.view == PipelineView::operations) return;
  beside(220);
  static constexpr std::array<std::string_view, 2> colorings = {"by phase", "by micro-batch"};
  PipelineState& scope = context.state;
  if (const auto picked = segmented(look, "coloring", static_cast<std::size_t>(scope.coloring), colorings))
    scope.coloring = static_cast<PipelineColoring>(*picked);
}

void draw_bubble(const Context& context, const StepView& step) {
  if (step.slots.empty() || step.stages < 2) return;
  const Look& look = context.look;
  const Palette& c = look.color();
  const sim::StepParts parts = sim::step_parts(*context.prediction.report);
  text(look, TextRole::title, c.text,
       "Bubble " + sim::format_percent(parts.share(sim::StepPart::bubble)) + " of the step");
  ImGui::SameLine(0, look.px(10));
  const std::string closed = step.closed_form_bubble
                                 ? "by the closed form, equal stages and free transfers, " +
                                       sim::format_percent(*step.closed_form_bubble / parts.whole)
                                 : "no closed form is known for this schedule";
  text_fitted(look, TextRole::caption, c.dim, closed, ImGui::GetContentRegionAvail().x);
}

class Gantt {
 public:
  // A row each: of a stage's slots, or of a rank's.
  using Rows = std::vector<std::span<const sim::TimelineSlot>>;

  // `of` holds the rows' slots; their bars stay in `kept`.
  Gantt(const Context& context, Rows rows, std::shared_ptr<const void> of, const Frame& frame, KeptBars& kept)
      : look_(context.look),
        c_(look_.color()),
        rows_(std::move(rows)),
        of_(std::move(of)),
        frame_(frame),
        kept_(kept),
        by_phase_(context.state.coloring == PipelineColoring::phase),
        micro_batches_(micro_batches_of(context.prediction.scenario)),
        list_(ImPlot::GetPlotDrawList()) {}

  void draw() {
    keep_bars();
    const float inset = frame_.row >= look_.px(12) ? std::floor(look_.px(2)) : 0;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const float top = frame_.top + frame_.row * static_cast<float>(row) + inset;
      const float bottom = frame_.top + frame_.row * static_cast<float>(row + 1) - inset;
      for (const Bar& bar : kept_.rows[row]) {
        if (bar.index == kMerged)
          list_->AddRectFilled({bar.begin, top}, {bar.end, bottom}, merged_color(bar));
        else
          draw_slot(rows_[row][bar.index], bar, top, bottom);
      }
    }
  }

 private:
  void keep_bars() {
    const float least = rows_.size() > kManyRows ? kLeastBarOfMany : kLeastBar;
    const std::vector<double> drawn_as = {frame_.begin,
                                          frame_.end,
                                          frame_.left,
                                          frame_.right,
                                          least,
                                          static_cast<double>(rows_.size()),
                                          static_cast<double>(by_phase_),
                                          static_cast<double>(micro_batches_)};
    if (kept_.of == of_ && kept_.drawn_as == drawn_as) return;
    kept_ = {of_, drawn_as, std::vector<std::vector<Bar>>(rows_.size())};
    const auto pixel_of = [this](double seconds) { return frame_.x(seconds); };
    const auto weigh = [this](const sim::TimelineSlot& slot, float width, BarKinds& kinds) {
      if (!by_phase_) {
        kinds[2 * hue_of(slot, micro_batches_) + (kind_of(slot) == kForward ? 0 : 1)] += width;
        return;
      }
      const auto again = static_cast<float>(slot.recompute / (slot.end - slot.start));
      kinds[kRecompute] += width * again;
      kinds[kind_of(slot)] += width * (1 - again);
    };
    for (std::size_t row = 0; row < rows_.size(); ++row)
      merge_bars(rows_[row], frame_.begin, frame_.end, least, pixel_of, weigh, kept_.rows[row]);
  }

  ImU32 color_of(std::size_t kind) const {
    return by_phase_ ? kind_color(c_, kind) : hue_color(c_, kind / 2, kind % 2 == 0);
  }

  ImU32 merged_color(const Bar& bar) const {
    ImVec4 sum = {0, 0, 0, 0};
    for (std::size_t kind = 0; kind < kBarKinds; ++kind) {
      if (bar.kinds[kind] <= 0) continue;
      const ImVec4 one = ImGui::ColorConvertU32ToFloat4(color_of(kind));
      sum.x += one.x * bar.kinds[kind];
      sum.y += one.y * bar.kinds[kind];
      sum.z += one.z * bar.kinds[kind];
    }
    sum.w = bar.filled;
    return ImGui::ColorConvertFloat4ToU32(sum);
  }

  void draw_slot(const sim::TimelineSlot& slot, const Bar& bar, float top, float bottom) {
    const Kind kind = kind_of(slot);
    const ImU32 color = by_phase_ || kind == kOptimizer
                            ? kind_color(c_, kind)
                            : hue_color(c_, hue_of(slot, micro_batches_), kind == kForward);
    const float gap = bar.end - bar.begin > look_.px(5) ? 1.0f : 0.0f;
    const ImVec2 least = {std::max(bar.begin, frame_.left - 4), top};
    const ImVec2 most = {std::min(bar.end - gap, frame_.right + 4), bottom};
    if (most.x <= least.x) return;
    list_->AddRectFilled(least, most, color, std::min(look_.px(2), (most.x - least.x) / 3));
    // The part that is done a second time as a strip: when in the pass it comes depends on the layers.
    const auto again = static_cast<float>(slot.recompute / (slot.end - slot.start));
    if (again > 0 && by_phase_)
      list_->AddRectFilled({least.x, bottom - (bottom - top) * again}, most, kind_color(c_, kRecompute));
    if (bottom - top < look_.px(12) || most.x - least.x < look_.px(14) || kind == kOptimizer) return;
    const std::string words = sim::format_count(slot.micro_batch);
    if (text_size_of(look_, TextRole::number, words).x + look_.px(4) < most.x - least.x)
      draw_text(list_, look_, TextRole::number, {(least.x + most.x) / 2, (top + bottom) / 2},
                text_on(again > 0.5f && by_phase_ ? kind_color(c_, kRecompute) : color), words, {0.5f, 0.5f});
  }

  const Look& look_;
  const Palette& c_;
  Rows rows_;
  std::shared_ptr<const void> of_;
  Frame frame_;
  KeptBars& kept_;
  bool by_phase_;
  int micro_batches_;
  ImDrawList* list_;
};

// Beside each row: what its stage does at the cursor, and what it holds.
void draw_moment(const Context& context, const StepView& step, const Frame& frame, float left, float width,
                 const ScaleUnit& bytes) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const PipelineState& scope = context.state;
  const float line = text_size_of(look, TextRole::number, "x").y;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const int every = std::max(1, static_cast<int>(std::ceil(line / frame.row)));
  const bool chunks = context.prediction.scenario.strategy.virtual_pipeline > 1 && width > look.px(190);
  for (int stage = 0; stage < step.stages; stage += every) {
    // The row whose memory is shown below is never left out, even where rows are too low for words.
    const int shown = scope.stage > stage && scope.stage < stage + every ? scope.stage : stage;
    const float middle = frame.top + frame.row * (static_cast<float>(stage) + 0.5f);
    const sim::TimelineSlot* slot = step.slot_at(shown, {scope.cursor});
    const ImU32 color = shown == scope.stage ? c.text : c.dim;
    std::string words = slot ? describe(*slot, chunks) : "waits";
    if (every > 1) words = std::to_string(shown) + ": " + words;
    const std::string holds =
        bytes.text(static_cast<double>(sim::total(step.memory_at(shown, {scope.cursor})).value));
    const float room = width - text_size_of(look, TextRole::number, holds).x - look.px(10);
    draw_text(list, look, TextRole::number, {left, middle}, slot ? color : c.mute,
              fitted(look, TextRole::number, words, room), {0, 0.5f});
    draw_text(list, look, TextRole::number, {left + width, middle},
              shown == scope.stage ? c.predicted : color, holds, {1, 0.5f});
  }
}

void describe_slot(const Look& look, const StepView& step, int stage, double time, const ScaleUnit& bytes) {
  const Palette& c = look.color();
  const sim::TimelineSlot* slot = step.slot_at(stage, {time});
  ImGui::BeginTooltip();
  std::string title = "stage " + std::to_string(stage) + ": ";
  if (!slot) {
    title += "waits";
  } else {
    title += std::string(kKindNames[kind_of(*slot)]);
    if (kind_of(*slot) != kOptimizer)
      title += " of micro-batch " + sim::format_count(slot->micro_batch) + ", chunk " +
               sim::format_count(slot->chunk);
  }
  text(look, TextRole::title, c.text, title);
  if (slot) {
    text(look, TextRole::number, c.predicted,
         sim::format(slot->end - slot->start) + ", from " + sim::format(slot->start));
    if (slot->recompute.value > 0)
      text(look, TextRole::number, c.dim, "of which recompute " + sim::format(slot->recompute));
  }
  text(look, TextRole::number, c.dim,
       "holds " + bytes.text(static_cast<double>(sim::total(step.memory_at(stage, {time})).value)));
  ImGui::EndTooltip();
}

// Columns of pixels, each with its interval's fullest moment.
class MemoryColumns {
 public:
  MemoryColumns(const Frame& frame, float width)
      : frame_(frame),
        width_(width),
        count_(static_cast<std::size_t>(std::max(1.0f, (frame.right - frame.left) / width))) {}

  std::size_t count() const { return count_; }
  float left(std::size_t column) const { return frame_.left + width_ * static_cast<float>(column); }

  // Index of a stage's fullest point in each column; a column without one holds what the last point left.
  std::vector<std::size_t> fullest(const StepView& step, std::size_t stage) const {
    const std::vector<sim::MemoryTimePoint>& points = step.memory[stage];
    const std::vector<sim::Bytes>& live = step.live[stage];
    std::vector<std::size_t> index(count_, 0);
    auto next = static_cast<std::size_t>(
        std::partition_point(points.begin(), points.end(),
                             [&](const auto& point) { return point.time.value < frame_.begin; }) -
        points.begin());
    std::size_t last = next > 0 ? next - 1 : 0;
    for (std::size_t column = 0; column < count_; ++column) {
      const double until = frame_.begin + (frame_.end - frame_.begin) * static_cast<double>(column + 1) /
                                              static_cast<double>(count_);
      std::size_t best = last;
      bool any = false;
      for (; next < points.size() && points[next].time.value <= until; last = next++)
        if (!any || live[next] > live[best]) {
          best = next;
          any = true;
        }
      index[column] = best;
    }
    return index;
  }

 private:
  Frame frame_;
  float width_;
  std::size_t count_;
};

void draw_memory_lines(const Context& context, const StepView& step, const Frame& frame,
                       const ScaleUnit& unit) {
  const Look& look = context.look;
  const Palette& c = look.color();
  ImDrawList* list = ImPlot::GetPlotDrawList();
  const MemoryColumns columns(frame, kLeastBar);
  const float zero = ImPlot::PlotToPixels(0, 0).y, one = ImPlot::PlotToPixels(0, 1).y;
  const auto y = [&](double bytes) { return zero + (one - zero) * static_cast<float>(bytes / unit.size); };

  const auto selected = static_cast<std::size_t>(context.state.stage);
  const auto& points = step.memory[selected];
  const std::vector<std::size_t> fullest = columns.fullest(step, selected);
  // Neighbouring columns that hold the same are one rectangle.
  for (std::size_t column = 0; column < columns.count();) {
    std::size_t end = column + 1;
    while (end < columns.count() && fullest[end] == fullest[column]) ++end;
    double sum = 0;
    float below = y(0);
    for (int category = 0; category < sim::kBufferClasses; ++category) {
      const sim::Bytes bytes = points[fullest[column]].bytes[static_cast<std::size_t>(category)];
      if (bytes.value <= 0) continue;
      sum += static_cast<double>(bytes.value);
      const float above = y(sum);
      list->AddRectFilled({columns.left(column), above}, {columns.left(end), below},
                          with_alpha(c.memory[static_cast<std::size_t>(category)], 0.9f));
      below = above;
    }
    column = end;
  }
  if (step.stages < 2) return;

  std::vector<ImVec2> line(columns.count());
  std::vector<double> least(columns.count(), 1e300), most(columns.count(), 0);
  for (std::size_t stage = 0; stage < step.memory.size(); ++stage) {
    const std::vector<std::size_t> index = columns.fullest(step, stage);
    for (std::size_t column = 0; column < columns.count(); ++column) {
      const auto bytes = static_cast<double>(step.live[stage][index[column]].value);
      least[column] = std::min(least[column], bytes);
      most[column] = std::max(most[column], bytes);
      line[column] = {columns.left(column), y(bytes)};
    }
    if (step.stages <= kMostMemoryLines && stage != selected)
      list->AddPolyline(line.data(), static_cast<int>(line.size()), with_alpha(c.text, 0.45f), look.px(1));
  }
  if (step.stages <= kMostMemoryLines) return;
  for (const auto* edge : {&least, &most}) {
    for (std::size_t column = 0; column < columns.count(); ++column)
      line[column] = {columns.left(column), y((*edge)[column])};
    list->AddPolyline(line.data(), static_cast<int>(line.size()), with_alpha(c.text, 0.6f), look.px(1));
  }
}

std::vector<LegendEntry> legend_of(const Context& context, const StepView& step) {
  const Palette& c = context.look.color();
  std::vector<LegendEntry> entries;
  std::array<bool, kKinds> any{};
  for (const sim::TimelineSlot& slot : step.slots_of(step.stages - 1)) {
    any[kind_of(slot)] = true;
    any[kRecompute] = any[kRecompute] || slot.recompute.value > 0;
  }
  if (context.state.coloring == PipelineColoring::phase) {
    for (std::size_t kind = 0; kind < kKinds; ++kind)
      if (any[kind]) entries.push_back({kind_color(c, kind), kKindNames[kind]});
  } else {
    entries.push_back({hue_color(c, 0, true), "forward of the first micro-batches"});
    entries.push_back({hue_color(c, kHues - 1, true), "of the last"});
    entries.push_back({hue_color(c, 0, false), "backward: the same, darker"});
  }
  return entries;
}

std::vector<LegendEntry> memory_legend_of(const Context& context, const StepView& step) {
  const Palette& c = context.look.color();
  sim::MemoryByClass ever{};
  for (const sim::MemoryTimePoint& point : step.memory[static_cast<std::size_t>(context.state.stage)])
    for (std::size_t i = 0; i < ever.size(); ++i) ever[i] = std::max(ever[i], point.bytes[i]);
  std::vector<LegendEntry> entries;
  for (int category = 0; category < sim::kBufferClasses; ++category)
    if (ever[static_cast<std::size_t>(category)].value > 0)
      entries.push_back({c.memory[static_cast<std::size_t>(category)], memory_category_title(category)});
  if (step.stages > 1)
    entries.push_back({with_alpha(c.text, 0.5f),
                       step.stages <= kMostMemoryLines ? "other stages" : "least and most of all stages"});
  return entries;
}

// Whether the run is of what is predicted but for where and in which type.
bool ran_as_predicted(const Context& context) {
  const RunView& run = context.run();
  if (!run.measured) return false;
  const sim::Scenario& ran = run.measured->source.scenario;
  const sim::Scenario& predicted = context.prediction.scenario;
  sim::Workload workload = ran.workload;
  workload.dtype = predicted.workload.dtype;
  return ran.model == predicted.model && ran.strategy == predicted.strategy && workload == predicted.workload;
}

// The newest step that all ranks told of; null where they told of none like the one that is predicted.
const RankTracks* tracks_of(const Context& context) {
  return ran_as_predicted(context) ? context.run().tracks.get() : nullptr;
}
std::shared_ptr<const RankOperations> operations_of(const Context& context) {
  return ran_as_predicted(context) ? context.run().operations : nullptr;
}

// Found once for each step that is told.
const std::vector<TrackGap>& gaps_in_view(const Context& context) {
  PipelineState& scope = context.state;
  if (const auto& tracks = context.run().tracks; scope.tracks != tracks) {
    scope.tracks = tracks;
    scope.gaps = tracks ? gaps_of(*tracks) : std::vector<TrackGap>{};
  }
  return scope.gaps;
}

// What each rank waited for, in the gap where it has room, and under the pointer in any.
void draw_gaps(const Context& context, const Frame& frame) {
  const Look& look = context.look;
  const Palette& c = look.color();
  ImDrawList* list = ImPlot::GetPlotDrawList();
  const ImVec2 mouse = ImGui::GetMousePos();
  for (const TrackGap& gap : gaps_in_view(context)) {
    const float left = frame.x(gap.begin.value), right = frame.x(gap.end.value);
    const float top = frame.top + frame.row * static_cast<float>(gap.rank), bottom = top + frame.row;
    const std::string words = "waits for " + gap.why, time = sim::format(gap.length());
    const bool hovered =
        ImPlot::IsPlotHovered() && mouse.x >= left && mouse.x < right && mouse.y >= top && mouse.y < bottom;
    for (const std::string& shown : {words + ", " + time, words, time}) {
      const ImVec2 size = text_size_of(look, TextRole::caption, shown);
      if (size.x > right - left - look.px(6) || size.y > frame.row) continue;
      draw_text(list, look, TextRole::caption, {(left + right) / 2, (top + bottom) / 2}, c.dim, shown,
                {0.5f, 0.5f});
      break;
    }
    if (hovered)
      ImGui::SetTooltip("rank %zu does nothing for %s:\n%s", gap.rank, time.c_str(), words.c_str());
  }
}

// Beneath the predicted stages, on their axis: what each rank did.
void draw_tracks(const Context& context, const RankTracks& tracks, const ScaleUnit& time, ImVec2 size,
                 float gutter) {
  const Look& look = context.look;
  const Palette& c = look.color();
  PipelineState& scope = context.state;
  const RunView& run = context.run();
  const float begin = ImGui::GetCursorPosY();
  const std::string& predicted_of = context.prediction.scenario.hardware.name;
  const bool elsewhere = run.measured->source.scenario.hardware.name != predicted_of;
  std::string words = "Measured, step " + sim::format_count(tracks.step) + ": " +
                      counted(std::ssize(tracks.of_rank), "rank") + " on " + run.measured->source.device;
  if (elsewhere) words += "; predicted: " + predicted_of;
  const float button =
      elsewhere ? text_size_of(look, TextRole::body, "Predict this machine").x + look.px(24) : 0;
  text_fitted(look, TextRole::caption, c.measured, words, size.x + gutter - button);
  if (elsewhere) {
    ImGui::SameLine();
    if (ImGui::SmallButton("Predict this machine")) context.invoke("hardware.this-machine");
  }
  const auto rows = static_cast<int>(tracks.of_rank.size());
  const float height = std::max(look.px(30), size.y - (ImGui::GetCursorPosY() - begin));
  constexpr ImPlotFlags flags = ImPlotFlags_CanvasOnly | ImPlotFlags_NoFrame;
  if (!ImPlot::BeginPlot("##tracks", {size.x, height}, flags)) return;
  set_up_time(scope, time, false);
  ImPlot::SetupAxis(ImAxis_Y1, "rank",
                    ImPlotAxisFlags_Invert | ImPlotAxisFlags_Lock | ImPlotAxisFlags_NoHighlight |
                        ImPlotAxisFlags_NoGridLines | ImPlotAxisFlags_NoTickMarks);
  ImPlot::SetupAxisLimits(ImAxis_Y1, -0.5, rows - 0.5, ImPlotCond_Always);
  const int every = std::max(1, static_cast<int>(std::ceil(look.px(14) * static_cast<float>(rows) / height)));
  std::vector<double> ticks;
  for (int rank = 0; rank < rows; rank += every) ticks.push_back(rank);
  label_axis(ImAxis_Y1);
  ImPlot::SetupAxisTicks(ImAxis_Y1, ticks.data(), static_cast<int>(ticks.size()));
  ImPlot::PushPlotClipRect();
  const Frame frame = frame_of_plot(rows);
  const float bottom = frame.top + frame.row * static_cast<float>(rows);
  ImPlot::GetPlotDrawList()->AddRectFilled({frame.left, frame.top}, {frame.right, bottom}, c.raised);
  Gantt(context, {tracks.of_rank.begin(), tracks.of_rank.end()}, context.run().tracks, frame,
        scope.track_bars)
      .draw();
  draw_gaps(context, frame);
  draw_cursor(look, frame, scope.cursor, bottom);
  ImPlot::PopPlotClipRect();
  take_hand(scope);
  ImPlot::EndPlot();
  if (gutter <= 0) return;
  ImDrawList* list = ImGui::GetWindowDrawList();
  for (int rank = 0; rank < rows; rank += every) {
    const auto& slots = tracks.of_rank[static_cast<std::size_t>(rank)];
    if (slots.empty()) continue;
    const float middle = frame.top + frame.row * (static_cast<float>(rank) + 0.5f);
    draw_text(list, look, TextRole::number, {frame.right + look.px(10), middle}, c.dim,
              fitted(look, TextRole::number, "stage " + std::to_string(slots.front().stage), gutter),
              {0, 0.5f});
  }
}

void draw_plots(const Context& context, const StepView& step, ImVec2 room) {
  const Look& look = context.look;
  const Palette& c = look.color();
  PipelineState& scope = context.state;
  const ScaleUnit time = time_unit(scope.duration);
  const auto capacity = static_cast<double>(context.prediction.scenario.hardware.memory.value);
  const auto peak = static_cast<double>(step.peak.value);
  const bool capacity_in_view = capacity < 1.6 * peak;
  const ScaleUnit bytes = byte_unit(capacity_in_view ? std::min(peak, capacity) : peak);
  const float gutter = room.x >= look.px(620) ? look.px(room.x >= look.px(900) ? 200 : 150) : 0;
  const float gap = look.px(10), plot_width = room.x - (gutter > 0 ? gutter + gap : 0);
  const std::vector<LegendEntry> phases = legend_of(context, step), classes = memory_legend_of(context, step);
  const float spacing = ImGui::GetStyle().ItemSpacing.y;
  const float legends =
      legend_height(look, phases, room.x) + legend_height(look, classes, room.x) + 3 * spacing;
  const float plots = std::max(look.px(60), room.y - legends);
  const bool one_by_one = scope.view == PipelineView::operations;
  const RankTracks* const ran = tracks_of(context);
  const RankTracks* const tracks = one_by_one ? nullptr : ran;
  const float tracks_height = tracks ? std::floor(plots * (step.stages > 1 ? 0.42f : 0.3f)) : 0;
  const float gantt_height =
      one_by_one ? std::floor(plots * 0.6f)
                 : std::floor((plots - tracks_height) * (step.stages > 1 ? (tracks ? 0.5f : 0.56f) : 0.3f));

  const TextScope axes(look, TextRole::caption);
  const bool aligned = ImPlot::BeginAlignedPlots("step");
  const float left = ImGui::GetCursorScreenPos().x + plot_width + gap;
  constexpr ImPlotFlags flags = ImPlotFlags_CanvasOnly | ImPlotFlags_NoFrame;
  int hovered_stage = -1;
  if (one_by_one)
    draw_operations(context, operations_of(context), ran, time, {plot_width, gantt_height});
  else if (ImPlot::BeginPlot("##gantt", {plot_width, gantt_height}, flags)) {
    set_up_time(scope, time, false);
    ImPlot::SetupAxis(ImAxis_Y1, step.stages > 1 ? "stage" : nullptr,
                      ImPlotAxisFlags_Invert | ImPlotAxisFlags_Lock | ImPlotAxisFlags_NoHighlight |
                          ImPlotAxisFlags_NoGridLines | ImPlotAxisFlags_NoTickMarks);
    ImPlot::SetupAxisLimits(ImAxis_Y1, -0.5, step.stages - 0.5, ImPlotCond_Always);
    const float row = gantt_height / static_cast<float>(step.stages);
    const int every = std::max(1, static_cast<int>(std::ceil(look.px(18) / row)));
    std::vector<double> ticks;
    for (int stage = 0; stage < step.stages; stage += every) ticks.push_back(stage);
    label_axis(ImAxis_Y1);
    ImPlot::SetupAxisTicks(ImAxis_Y1, ticks.data(), static_cast<int>(ticks.size()));
    ImPlot::PushPlotClipRect();
    const Frame frame = frame_of_plot(step.stages);
    const float bottom = frame.top + frame.row * static_cast<float>(step.stages);
    // Waiting is what shows through.
    ImPlot::GetPlotDrawList()->AddRectFilled({frame.left, frame.top}, {frame.right, bottom}, c.raised);
    Gantt::Rows rows;
    for (int stage = 0; stage < step.stages; ++stage) rows.push_back(step.slots_of(stage));
    Gantt(context, std::move(rows), context.prediction.step, frame, scope.stage_bars).draw();
    draw_cursor(look, frame, scope.cursor, bottom);
    ImPlot::PopPlotClipRect();
    take_hand(scope);
    if (ImPlot::IsPlotHovered()) {
      hovered_stage =
          std::clamp(static_cast<int>(std::floor(ImPlot::GetPlotMousePos().y + 0.5)), 0, step.stages - 1);
      if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) scope.stage = hovered_stage;
    }
    ImPlot::EndPlot();
    if (gutter > 0) draw_moment(context, step, frame, left, gutter, bytes);
  }
  draw_legend(look, phases, room.x);
  if (tracks) draw_tracks(context, *tracks, time, {plot_width, tracks_height - spacing}, gutter);
  bool whole = hovered_stage >= 0 && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left);
  const float memory_height = std::max(look.px(40), plots - gantt_height - tracks_height);
  if (ImPlot::BeginPlot("##memory", {plot_width, memory_height}, flags)) {
    set_up_time(scope, time, true);
    ImPlot::SetupAxis(ImAxis_Y1, bytes.name, ImPlotAxisFlags_Lock | ImPlotAxisFlags_NoHighlight);
    const double top = std::max(peak * 1.1, capacity_in_view ? capacity * 1.08 : 0) / bytes.size;
    ImPlot::SetupAxisLimits(ImAxis_Y1, 0, top, ImPlotCond_Always);
    round_axis(ImAxis_Y1, 0, top, static_cast<int>(memory_height / look.px(40)));
    label_axis(ImAxis_Y1);
    ImPlot::PushPlotClipRect();
    const Frame frame = frame_of_plot(1);
    draw_memory_lines(context, step, frame, bytes);
    if (capacity_in_view) {
      const float y = std::floor(ImPlot::PlotToPixels(0, capacity / bytes.size).y);
      ImPlot::GetPlotDrawList()->AddRectFilled({frame.left, y}, {frame.right, y + look.px(1.5f)}, c.bad);
    }
    draw_cursor(look, frame, scope.cursor, frame.top + frame.row);
    ImPlot::PopPlotClipRect();
    take_hand(scope);
    whole = whole || (ImPlot::IsPlotHovered() && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left));
    ImPlot::EndPlot();
    if (gutter > 0) {
      ImDrawList* list = ImGui::GetWindowDrawList();
      float y = frame.top;
      const auto say = [&](TextRole role, ImU32 color, const std::string& words) {
        draw_text(list, look, role, {left, y}, color, fitted(look, role, words, gutter));
        y += text_size_of(look, role, words).y + look.px(3);
      };
      say(TextRole::title, c.text, "at " + time.text(scope.cursor));
      if (step.stages > 1) say(TextRole::caption, c.dim, "of stage " + std::to_string(scope.stage) + ":");
      const sim::MemoryByClass held = step.memory_at(scope.stage, {scope.cursor});
      for (int category = 0; category < sim::kBufferClasses; ++category) {
        const sim::Bytes of_class = held[static_cast<std::size_t>(category)];
        if (of_class.value <= 0 || y + look.px(14) > frame.top + frame.row) continue;
        draw_text(list, look, TextRole::number, {left + gutter, y}, c.predicted,
                  bytes.text(static_cast<double>(of_class.value)), {1, 0});
        say(TextRole::caption, c.dim, std::string(memory_category_title(category)));
      }
      if (capacity_in_view && y + look.px(14) < frame.top + frame.row) {
        draw_text(list, look, TextRole::number, {left + gutter, y}, c.bad, bytes.text(capacity), {1, 0});
        say(TextRole::caption, c.bad, "capacity");
      }
    }
  }
  draw_legend(look, classes, room.x);
  if (aligned) ImPlot::EndAlignedPlots();
  if (whole) {
    scope.begin = 0;
    scope.end = scope.duration;
  }
  if (hovered_stage >= 0) describe_slot(look, step, hovered_stage, scope.cursor, bytes);
}

std::string caption(const PanelContext& context) {
  const sim::Scenario& s = context.prediction.scenario;
  if (s.workload.task != sim::Task::train || !context.prediction.step) return "";
  std::string words = counted(s.strategy.pipeline_parallel, "stage");
  if (s.strategy.virtual_pipeline > 1) words += " of " + counted(s.strategy.virtual_pipeline, "chunk");
  return words + ", " + counted(micro_batches_of(s), "micro-batch");
}

void draw(const Context& context) {
  if (context.scenario.workload.task != sim::Task::train)
    return draw_empty_state(context, "No pipeline",
                            "Schedules are of training steps: choose Train above to see one.");
  const auto step = context.prediction.step;
  PipelineState& scope = context.state;
  draw_controls(context);
  if (draw_missing_prediction(context)) return;
  if (!step) return draw_empty_state(context, "Predicting", "The step's timeline is on its way.");
  const RankTracks* const tracks = tracks_of(context);
  const auto operations = operations_of(context);
  const double longer = std::max({step->duration.value, tracks ? tracks->duration.value : 0,
                                  operations ? operations->duration.value : 0});
  if (scope.predicted != step->duration.value || context.frozen) {
    scope.predicted = step->duration.value;
    scope.duration = scope.end = longer;
    scope.begin = 0;
    scope.cursor = step->peak_time.value;
    scope.stage = step->fullest_stage;
  }
  // The whole step stays the whole step while measured ones come in.
  if (scope.end >= scope.duration || scope.end > longer) scope.end = longer;
  scope.duration = longer;
  scope.stage = std::clamp(scope.stage, 0, step->stages - 1);
  draw_bubble(context, *step);
  draw_plots(context, *step, ImGui::GetContentRegionAvail());
}

std::vector<Figure> figures(const Context& context) {
  if (!context.prediction.step) return {};
  const StepView& step = *context.prediction.step;
  const Palette& c = context.look.color();
  const bool chunks = context.scenario.strategy.virtual_pipeline > 1;
  FigureTimeline timeline;
  for (int stage = 0; stage < step.stages; ++stage) timeline.rows.push_back("stage " + std::to_string(stage));
  for (const sim::TimelineSlot& slot : step.slots) {
    const Kind kind = kind_of(slot);
    timeline.spans.push_back({static_cast<std::size_t>(slot.stage), describe(slot, chunks),
                              std::string(kKindNames[kind]), kind_color(c, kind), slot.start.value,
                              slot.end.value});
  }
  const PipelineState& scope = context.state;
  if (scope.view == PipelineView::operations)
    return operation_figures(context, operations_of(context), tracks_of(context));
  const double duration = step.duration.value;
  if (scope.predicted == duration && (scope.begin > 0 || scope.end < duration) && scope.end > scope.begin)
    timeline.seen = FigureRange{scope.begin, scope.end};
  FigurePlot memory{{"time", Measure::seconds}, {"live memory", Measure::bytes}, {}};
  memory.x.seen = timeline.seen;
  for (std::size_t stage = 0; stage < step.memory.size(); ++stage) {
    FigureCurve curve{"stage " + std::to_string(stage), hue_color(c, stage % kHues, true), Mark::line, {}};
    for (const sim::MemoryTimePoint& point : step.memory[stage])
      curve.points.push_back({point.time.value, static_cast<double>(sim::total(point.bytes).value)});
    memory.curves.push_back(std::move(curve));
    if (memory.curves.size() >= static_cast<std::size_t>(kMostMemoryLines)) break;
  }
  std::vector<Figure> all = {{"A training step", std::move(timeline)},
                             {"Memory of each stage", std::move(memory)}};
  if (const RankTracks* const tracks = tracks_of(context)) {
    FigureTimeline ranks;
    for (std::size_t rank = 0; rank < tracks->of_rank.size(); ++rank) {
      ranks.rows.push_back("rank " + std::to_string(rank));
      for (const sim::TimelineSlot& slot : tracks->of_rank[rank])
        ranks.spans.push_back({rank, describe(slot, chunks), std::string(kKindNames[kind_of(slot)]),
                               kind_color(c, kind_of(slot)), slot.start.value, slot.end.value});
    }
    all.push_back({"Measured, each rank", std::move(ranks)});
    FigureTable gaps{
        {{"rank", Measure::count}, {"begins", Measure::seconds}, {"lasts", Measure::seconds}, {"waits for"}},
        {}};
    for (const TrackGap& gap : gaps_in_view(context))
      gaps.rows.push_back({static_cast<double>(gap.rank), gap.begin.value, gap.length().value, gap.why});
    all.push_back({"What each rank waited for", std::move(gaps)});
  }
  return all;
}

}  // namespace

extern const PanelEntry pipeline_panel = {"pipeline", "Pipeline",
                                          "which stage runs what when, and what it holds", Dock::upper_left,
                                          panel_of<PipelineState, caption, draw, figures>};

}  // namespace app::gui
