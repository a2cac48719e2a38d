// What fills the device: by category against its capacity, over a step, and buffer by buffer at the peak.
#include <algorithm>
#include <array>
#include <cmath>

#include "app/gui/legal.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/legend.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/plot.h"
#include "app/gui/widgets/text.h"
#include "app/lesson/field_words.h"
#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::gui {
namespace {

enum class MemoryTab { ledger, timeline, peak };
struct MemoryState {
  MemoryTab tab = MemoryTab::ledger;  // where there is room for one part alone
  double supposed = 0;                // bytes of a device, where its line was dragged; 0: the device's own
};

using Categories = std::array<double, kMemoryCategories>;  // bytes

struct Ledger {
  std::string label;
  ImU32 label_color;
  Categories bytes{};
  double total = 0;
};

Ledger ledger_of(const std::vector<sim::MemoryLine>& lines, std::string label, ImU32 color) {
  Ledger ledger{std::move(label), color};
  for (const sim::MemoryLine& line : lines) {
    const int category = memory_category(line.category);
    if (category < 0) continue;
    ledger.bytes[static_cast<std::size_t>(category)] += static_cast<double>(line.bytes.value);
    ledger.total += static_cast<double>(line.bytes.value);
  }
  return ledger;
}

Ledger ledger_of(const sim::Report& report, std::string label, ImU32 color) {
  return ledger_of(sim::peak_ledger(report), std::move(label), color);
}

constexpr float kLeastRow = 26;  // of a bar and what surrounds it, points

// Worth a row of its own beside another.
bool differs(const Ledger& a, const Ledger& b) {
  constexpr double kNoticeable = 0.01;
  return std::abs(a.total - b.total) > kNoticeable * b.total;
}

// The scenario, what was measured of it, then the neighbours whose memory differs.
std::vector<Ledger> ledgers(const PanelContext& context) {
  const Palette& c = context.look.color();
  const sim::Report& report = *context.prediction.report;
  std::vector<Ledger> rows = {ledger_of(report, "predicted", c.predicted)};
  if (const sim::Report* measured = context.measured(); measured && !measured->memory.empty())
    rows.push_back(ledger_of(*measured, "measured", c.measured));
  for (const Pin& pin : context.pins.all())
    if (pin.measured() || !(pin.scenario() == report.source.scenario))
      rows.push_back(ledger_of(*pin.report, pin.name(), pin_color(context.look, pin)));
  Ledger first = ledger_of(context.prediction.first_step_ledger, "in the first step", c.predicted);
  if (first.total > 0 && differs(first, rows.front())) rows.push_back(std::move(first));
  for (const Alternative& other : context.prediction.alternatives) {
    Ledger row = ledger_of(other.report, other.label, c.dim);
    if (differs(row, rows.front())) rows.push_back(std::move(row));
  }
  return rows;
}

struct Scale {
  float begin, end;  // pixels
  double greatest;   // bytes
  float at(double bytes) const { return begin + (end - begin) * static_cast<float>(bytes / greatest); }
};

// Over a plot's lines, which would go through the words. `align` as draw_text has it.
void text_on_plate(ImDrawList* list, const Look& look, TextRole role, ImVec2 at, ImU32 color,
                   const std::string& words, ImVec2 align) {
  const ImVec2 size = text_size_of(look, role, words);
  const ImVec2 least = {at.x - align.x * size.x, at.y - align.y * size.y};
  list->AddRectFilled({least.x - look.px(3), least.y}, {least.x + size.x + look.px(3), least.y + size.y},
                      look.color().panel, look.px(3));
  draw_text(list, look, role, at, color, words, align);
}

void draw_stack(const PanelContext& context, const Ledger& row, const Scale& scale, const ScaleUnit& unit,
                float top, float bottom, double capacity) {
  const Look& look = context.look;
  const Palette& c = look.color();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float gap = std::max(1.0f, std::floor(look.px(1)));
  double at = 0;
  for (int category = 0; category < kMemoryCategories; ++category) {
    const double bytes = row.bytes[static_cast<std::size_t>(category)];
    if (bytes <= 0) continue;
    const float begin = scale.at(at);
    at += bytes;
    const float end = scale.at(at);
    if (end - begin < 0.75f) continue;
    const ImVec2 least = {begin, top}, most = {std::max(begin + 0.75f, end - gap), bottom};
    const ImU32 color = c.memory[static_cast<std::size_t>(category)];
    list->AddRectFilled(least, most, color, std::min(look.px(4), (most.x - least.x) / 2));
    const std::string value = unit.digits(bytes);
    // Not where it is hatched.
    const float clear = std::min(most.x, scale.at(capacity));
    if (text_size_of(look, TextRole::number, value).x + look.px(10) < clear - least.x)
      draw_text(list, look, TextRole::number, {(least.x + clear) / 2, (top + bottom) / 2}, text_on(color),
                value, {0.5f, 0.5f});
    if (ImGui::IsMouseHoveringRect(least, most) && ImGui::IsWindowHovered()) {
      ImGui::SetTooltip("%s: %s", std::string(memory_category_title(category)).c_str(),
                        sim::format(sim::Bytes{static_cast<std::int64_t>(bytes)}).c_str());
      if (ImGui::IsMouseClicked(ImGuiMouseButton_Left))
        context.view.selection = {Quantity::memory_category, category, ""};
    }
  }
  if (row.total > capacity)
    hatch(list, look, {scale.at(capacity), top}, {scale.at(row.total) - gap, bottom},
          with_alpha(c.bad, 0.85f));
  const ImU32 color = row.total > capacity ? c.bad : row.label_color;
  const std::string total = unit.text(row.total);
  const float width = text_size_of(look, TextRole::number, total).x, line = scale.at(capacity);
  float x = scale.at(row.total) + look.px(8);
  // Beside the capacity's line, where that would go through it.
  if (x < line + look.px(4) && x + width > line - look.px(4) && line + look.px(6) + width <= scale.end)
    x = line + look.px(6);
  text_on_plate(list, look, TextRole::number, {x, (top + bottom) / 2}, color, total, {0, 0.5f});
}

std::vector<LegendEntry> legend_of(const Look& look, const Categories& shown) {
  std::vector<LegendEntry> entries;
  for (int category = 0; category < kMemoryCategories; ++category)
    if (shown[static_cast<std::size_t>(category)] > 0)
      entries.push_back(
          {look.color().memory[static_cast<std::size_t>(category)], memory_category_title(category)});
  return entries;
}

void draw_ledgers(const ContextWith<MemoryState>& context, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  std::vector<Ledger> rows = ledgers(context);
  const double own_capacity = static_cast<double>(context.scenario.hardware.memory.value);
  double& supposed = context.state.supposed;
  const double capacity = supposed > 0 ? supposed : own_capacity;
  Categories shown{};
  double greatest = 0;
  float label_width = 0;

  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float axis_height = text_size_of(look, TextRole::caption, "0").y + look.px(6);
  const float capacity_label = text_size_of(look, TextRole::caption, "0").y + look.px(4);
  for (const Ledger& row : rows)
    for (std::size_t i = 0; i < shown.size(); ++i) shown[i] += row.bytes[i];
  float legend = legend_height(look, legend_of(look, shown), size.x) + look.px(6);
  // Bars before their legend, where there is no room for both.
  if (size.y - axis_height - capacity_label - legend < look.px(2 * kLeastRow)) legend = 0;
  const float rows_height = size.y - axis_height - capacity_label - legend;
  const auto room_for =
      static_cast<std::size_t>(std::max(1.0f, std::floor(rows_height / (look.px(kLeastRow)))));
  if (rows.size() > room_for) rows.resize(room_for);
  for (const Ledger& row : rows) {
    greatest = std::max(greatest, row.total);
    label_width = std::max(label_width, text_size_of(look, TextRole::body, row.label).x);
  }
  label_width = std::min(label_width, size.x * 0.3f);
  // A device far larger than what is in it would make every bar a hair: then it is named, not drawn.
  const bool capacity_in_view = own_capacity <= 5 * greatest;
  const float total_width = text_size_of(look, TextRole::number, "000.0 GiB").x + look.px(12);
  const float plot_width = size.x - label_width - look.px(12);
  // The scale stays as it is while the line is dragged.
  const double widest = capacity_in_view ? std::max(own_capacity, greatest) : greatest;
  // The longest bar leaves room for its total; so does the capacity, where its line would go through one.
  const double without_total = std::max(0.2, 1.0 - static_cast<double>(total_width / plot_width));
  const bool crosses = capacity_in_view && std::any_of(rows.begin(), rows.end(), [&](const Ledger& row) {
                         return row.total <= own_capacity && row.total > own_capacity * without_total * 0.95;
                       });
  const double range =
      std::max(widest * 1.02, (crosses ? std::max(greatest, own_capacity) : greatest) / without_total);
  // The capacity is read off the same axis, so it has a say in the unit where it is drawn.
  const ScaleUnit unit = byte_unit(capacity_in_view ? std::min(greatest, own_capacity) : greatest);
  const Scale scale{begin.x + label_width + look.px(12), begin.x + size.x, range};

  ImDrawList* list = ImGui::GetWindowDrawList();
  const float rows_top = begin.y + capacity_label;
  const float row_height =
      std::clamp(rows_height / static_cast<float>(rows.size()), look.px(kLeastRow), look.px(56));
  const float rows_bottom = rows_top + row_height * static_cast<float>(rows.size());
  const float line = std::max(1.0f, std::floor(look.scale));
  for (const double tick : round_ticks(0, range / unit.size, static_cast<int>(plot_width / look.px(70)))) {
    const float x = std::floor(scale.at(tick * unit.size));
    list->AddRectFilled({x, rows_top}, {x + line, rows_bottom}, c.grid);
    const std::string label = tick == 0 ? std::string("0 ") + unit.name : tick_label(tick);
    const float half = text_size_of(look, TextRole::caption, label).x / 2;
    const float middle = tick == 0 ? x + half : std::min(x, scale.end - half);
    draw_text(list, look, TextRole::caption, {middle, rows_bottom + look.px(4)}, c.dim, label, {0.5f, 0});
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float top = rows_top + row_height * static_cast<float>(i);
    const float inset = std::min(look.px(9), row_height * 0.18f);
    draw_text(list, look, TextRole::body, {begin.x + label_width, top + row_height / 2}, rows[i].label_color,
              fitted(look, TextRole::body, rows[i].label, label_width), {1, 0.5f});
    draw_stack(context, rows[i], scale, unit, std::floor(top + inset), std::floor(top + row_height - inset),
               capacity);
  }
  const auto that_fit =
      std::count_if(rows.begin(), rows.end(), [&](const Ledger& row) { return row.total <= capacity; });
  const std::string capacity_text =
      supposed > 0 ? "a device of " + unit.text(supposed) + ": " + sim::format_count(that_fit) + " of " +
                         sim::format_count(std::ssize(rows)) + " fit"
      : capacity_in_view
          ? unit.text(capacity)
          : sim::format(context.scenario.hardware.memory) + " of memory, far to the right \u2192";
  if (capacity_in_view) {
    const float x = std::floor(scale.at(capacity));
    list->AddRectFilled({x - line / 2, rows_top - look.px(2)},
                        {x + std::max(line, look.px(1.5f)), rows_bottom}, c.bad);
    const float half = text_size_of(look, TextRole::caption, capacity_text).x / 2;
    draw_text(list, look, TextRole::caption, {std::min(x, scale.end - half), begin.y}, c.bad, capacity_text,
              {0.5f, 0});
  } else {
    draw_text(list, look, TextRole::caption, {scale.end, begin.y}, c.mute, capacity_text, {1, 0});
  }
  if (capacity_in_view) {
    const float grip = look.px(5);
    ImGui::SetCursorScreenPos({scale.at(capacity) - grip, rows_top});
    ImGui::InvisibleButton("capacity", {2 * grip, rows_bottom - rows_top});
    if (ImGui::IsItemHovered() || ImGui::IsItemActive()) ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeEW);
    if (ImGui::IsItemHovered() && !ImGui::IsItemActive())
      ImGui::SetTooltip(
          "Drag: what would fit in another device's memory.\nA double click gives this device's back.");
    if (ImGui::IsItemHovered() && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left))
      supposed = 0;
    else if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left))
      supposed =
          std::clamp(static_cast<double>((ImGui::GetMousePos().x - scale.begin) / (scale.end - scale.begin)),
                     0.01, 1.0) *
          scale.greatest;
  }
  ImGui::SetCursorScreenPos({begin.x, rows_bottom + axis_height + look.px(6)});
  if (legend > 0) draw_legend(look, legend_of(look, shown), size.x);
  ImGui::SetCursorScreenPos(begin);
  const float used = std::min(size.y, rows_bottom + axis_height + legend - begin.y);
  ImGui::Dummy({size.x, used});
}

struct Stack {
  std::vector<double> time;                                       // in the plot's unit
  std::array<std::vector<double>, sim::kBufferClasses + 1> edge;  // sums up to each class, in the plot's unit
  std::size_t peak = 0;
};

// At most `columns` points, each the fullest moment of its interval, from `begin` seconds on.
Stack stack_of(const std::vector<sim::MemoryTimePoint>& points, double begin_seconds, double time_unit,
               double byte_unit, std::size_t columns) {
  Stack stack;
  const std::size_t stride = std::max<std::size_t>(1, points.size() / columns);
  double peak = -1;
  for (std::size_t begin = 0; begin < points.size(); begin += stride) {
    std::size_t fullest = begin;
    for (std::size_t i = begin; i < std::min(points.size(), begin + stride); ++i)
      if (sim::total(points[i].bytes) > sim::total(points[fullest].bytes)) fullest = i;
    stack.time.push_back((begin_seconds + points[fullest].time.value) / time_unit);
    double sum = 0;
    stack.edge[0].push_back(0);
    for (std::size_t c = 0; c < sim::kBufferClasses; ++c) {
      sum += static_cast<double>(points[fullest].bytes[c].value) / byte_unit;
      stack.edge[c + 1].push_back(sum);
    }
    if (sum > peak) {
      peak = sum;
      stack.peak = stack.time.size() - 1;
    }
  }
  return stack;
}

// What is there at the last point stays until `time`, in the plot's unit.
void hold_until(Stack& stack, double time) {
  if (stack.time.empty() || time <= stack.time.back()) return;
  stack.time.push_back(time);
  for (auto& edge : stack.edge) edge.push_back(edge.back());
}

// A step, where it begins on the time axis.
struct TimelinePart {
  const std::vector<sim::MemoryTimePoint>* points;
  double begin = 0;  // seconds
  std::string_view name = {};
};

// A step like the one before it, which has the label.
constexpr std::string_view kAsBefore = "as before";

double peak_of(const TimelinePart& part) {
  double peak = 0;
  for (const sim::MemoryTimePoint& point : *part.points)
    peak = std::max(peak, static_cast<double>(sim::total(point.bytes).value));
  return peak;
}

constexpr int kFirstSteps = 4;

// The first steps of the run that is shown beside the prediction; null: it has told of none.
const std::vector<sim::StepMemoryEvent>* measured_steps(const PanelContext& context) {
  const RunView& run = context.run();
  const bool any = context.measured() && run.first_steps && run.first_steps->size() > 1;
  return any ? run.first_steps.get() : nullptr;
}

// In training the first four steps, where the first differs, what is made once is not there yet, or where
// they were measured.
std::vector<TimelinePart> timeline_parts(const PanelContext& context) {
  const auto& later = context.prediction.report->memory_timeline;
  const auto& step = context.prediction.step;
  if (!step || later.size() < 2) return {{&later}};
  const bool first_differs = step->first_step.size() > 1 &&
                             sim::total(step->first_step.front().bytes) != sim::total(later.front().bytes);
  if (!first_differs && !measured_steps(context)) return {{&later}};
  const double one = context.prediction.report->step_time.value;
  std::vector<TimelinePart> parts = {
      {first_differs ? &step->first_step : &later, 0, first_differs ? "first step" : "each step"},
      {&later, one, first_differs ? "later steps" : kAsBefore}};
  while (parts.size() < kFirstSteps)
    parts.push_back({&later, static_cast<double>(parts.size()) * one, kAsBefore});
  return parts;
}

// What was measured, each step where it began.
std::vector<TimelinePart> measured_parts(const PanelContext& context, double begin_of_one) {
  std::vector<TimelinePart> parts;
  if (const auto* steps = measured_steps(context)) {
    for (const sim::StepMemoryEvent& step : *steps)
      if (parts.size() < kFirstSteps && step.points.size() > 1)
        parts.push_back({&step.points, (step.begin - steps->front().begin).value});
  } else if (const sim::Report* measured = context.measured();
             measured && measured->memory_timeline.size() > 1) {
    parts.push_back({&measured->memory_timeline, begin_of_one});
  }
  return parts;
}

void draw_part(const PanelContext& context, const TimelinePart& part, const Stack& stack,
               const ScaleUnit& unit) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const int n = static_cast<int>(stack.time.size());
  for (int category = 0; category < sim::kBufferClasses; ++category) {
    const auto& lower = stack.edge[static_cast<std::size_t>(category)];
    const auto& upper = stack.edge[static_cast<std::size_t>(category) + 1];
    if (std::equal(lower.begin(), lower.end(), upper.begin())) continue;
    ImPlotSpec spec;
    spec.FillColor = ImGui::ColorConvertU32ToFloat4(c.memory[static_cast<std::size_t>(category)]);
    spec.FillAlpha = 0.9f;
    spec.LineColor = spec.FillColor;
    spec.LineWeight = 0;
    ImPlot::PlotShaded((std::string(memory_category_title(category)) + std::to_string(part.begin)).c_str(),
                       stack.time.data(), lower.data(), upper.data(), n, spec);
  }
  ImPlot::PushPlotClipRect();
  ImDrawList* list = ImPlot::GetPlotDrawList();
  std::vector<ImVec2> outline;
  for (std::size_t i = 0; i < stack.time.size(); ++i)
    outline.push_back(ImPlot::PlotToPixels(stack.time[i], stack.edge.back()[i]));
  dashed_line(list, look, outline, c.predicted, look.px(1.5f));
  if (part.name == kAsBefore) return ImPlot::PopPlotClipRect();
  const ImVec2 peak = outline[stack.peak];
  list->AddCircleFilled(peak, look.px(4), c.text);
  std::string label = "at most " + unit.text(stack.edge.back()[stack.peak] * unit.size) + " live";
  if (!part.name.empty()) label.insert(0, std::string(part.name) + ": ");
  const ImVec2 extent = text_size_of(look, TextRole::caption, label);
  float bottom = peak.y - look.px(7), plot_right = ImPlot::GetPlotPos().x + ImPlot::GetPlotSize().x;
  // Above the capacity's line where that would cross it, and left of the line's own words.
  const double capacity = static_cast<double>(context.scenario.hardware.memory.value);
  const float line = ImPlot::PlotToPixels(0, capacity / unit.size).y, gap = look.px(3);
  if (line < bottom + gap && line > bottom - extent.y - gap) {
    bottom = line - gap;
    plot_right -= text_size_of(look, TextRole::caption, unit.text(capacity)).x + look.px(16);
  }
  const float x = std::clamp(peak.x, outline.front().x + extent.x / 2 + look.px(6),
                             std::max(outline.front().x + extent.x / 2 + look.px(6),
                                      std::min(outline.back().x, plot_right) - extent.x / 2 - look.px(6)));
  text_on_plate(list, look, TextRole::caption, {x, bottom}, c.text, label, {0.5f, 1});
  ImPlot::PopPlotClipRect();
}

void draw_timeline(const PanelContext& context, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const std::vector<TimelinePart> parts = timeline_parts(context);
  const TimelinePart& last = parts.back();
  if (last.points->size() < 2) {
    draw_empty_state(context, "No timeline", "The prediction has no memory over time for this scenario.");
    return;
  }
  double peak_bytes = 0;
  for (const TimelinePart& part : parts) peak_bytes = std::max(peak_bytes, peak_of(part));
  const double capacity = static_cast<double>(context.scenario.hardware.memory.value);
  const bool capacity_in_view = capacity < 1.6 * peak_bytes;
  const ScaleUnit unit = byte_unit(capacity_in_view ? std::min(peak_bytes, capacity) : peak_bytes);
  const std::vector<TimelinePart> measured = measured_parts(context, last.begin);
  // The optimizer, which may allocate nothing, is part of the step.
  const double step = std::max(last.points->back().time.value, context.prediction.report->step_time.value);
  const double end =
      std::max(last.begin + step,
               measured.empty() ? 0.0 : measured.back().begin + measured.back().points->back().time.value);
  const ScaleUnit time = time_unit(end);
  const bool train = context.scenario.workload.task == sim::Task::train;
  const TextScope axes(look, TextRole::caption);
  if (!ImPlot::BeginPlot("##timeline", size, ImPlotFlags_CanvasOnly | ImPlotFlags_NoFrame)) return;
  const std::string x_label =
      parts.size() > 1 ? std::string("time from the start, ") + time.name
                       : std::string("time in a ") + (train ? "step" : "generation") + ", " + time.name;
  ImPlot::SetupAxes(x_label.c_str(), unit.name, ImPlotAxisFlags_NoHighlight, ImPlotAxisFlags_NoHighlight);
  const double top = std::max(peak_bytes * 1.18, capacity_in_view ? capacity * 1.08 : 0) / unit.size;
  ImPlot::SetupAxesLimits(0, end / time.size, 0, top, ImPlotCond_Always);
  label_axis(ImAxis_X1);
  label_axis(ImAxis_Y1);
  round_axis(ImAxis_X1, 0, end / time.size, static_cast<int>(size.x / look.px(80)));
  round_axis(ImAxis_Y1, 0, top, static_cast<int>(size.y / look.px(45)));
  constexpr std::size_t kColumns = 600;
  for (const TimelinePart& part : parts) {
    Stack stack = stack_of(*part.points, part.begin, time.size, unit.size, kColumns / parts.size());
    hold_until(stack, (part.begin + step) / time.size);
    draw_part(context, part, stack, unit);
  }
  ImPlot::PushPlotClipRect();
  ImDrawList* list = ImPlot::GetPlotDrawList();
  for (const TimelinePart& part : measured) {
    const Stack real = stack_of(*part.points, part.begin, time.size, unit.size, kColumns / measured.size());
    std::vector<ImVec2> line;
    for (std::size_t i = 0; i < real.time.size(); ++i)
      line.push_back(ImPlot::PlotToPixels(real.time[i], real.edge.back()[i]));
    list->AddPolyline(line.data(), static_cast<int>(line.size()), c.measured, look.px(1.6f));
  }
  const ImVec2 plot_least = ImPlot::GetPlotPos();
  const ImVec2 plot_most = {plot_least.x + ImPlot::GetPlotSize().x, plot_least.y + ImPlot::GetPlotSize().y};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const float x = std::floor(ImPlot::PlotToPixels(parts[i].begin / time.size, 0).x);
    list->AddRectFilled({x, plot_least.y}, {x + std::max(1.0f, std::floor(look.scale)), plot_most.y}, c.mute);
  }
  if (capacity_in_view) {
    const float y = std::floor(ImPlot::PlotToPixels(0, capacity / unit.size).y);
    list->AddRectFilled({plot_least.x, y}, {plot_most.x, y + look.px(1.5f)}, c.bad);
    text_on_plate(list, look, TextRole::caption, {plot_most.x - look.px(6), y - look.px(3)}, c.bad,
                  unit.text(capacity), {1, 1});
  }
  ImPlot::PopPlotClipRect();
  ImPlot::EndPlot();
}

void draw_peak_table(const PanelContext& context, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const auto& lines = context.prediction.live_at_peak;
  sim::Bytes whole;
  for (const LiveLine& line : lines) whole += line.bytes;
  constexpr ImGuiTableFlags flags =
      ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_PadOuterX;
  if (!ImGui::BeginTable("peak", 4, flags, size)) return;
  double largest = 0;
  for (const LiveLine& line : lines) largest = std::max(largest, static_cast<double>(line.bytes.value));
  const ScaleUnit unit = byte_unit(largest);
  const std::string size_heading = std::string("size, ") + unit.name;
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableSetupColumn("live at the peak", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("count", ImGuiTableColumnFlags_WidthFixed, look.px(44));
  ImGui::TableSetupColumn("size", ImGuiTableColumnFlags_WidthFixed, look.px(72));
  ImGui::TableSetupColumn("share", ImGuiTableColumnFlags_WidthFixed, look.px(48));
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (const char* heading : {"live at the peak", "count", size_heading.c_str(), "share"}) {
    ImGui::TableNextColumn();
    const bool first = ImGui::TableGetColumnIndex() == 0;
    (first ? text : text_right)(look, TextRole::caption, c.dim, heading);
  }
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(lines.size()));
  while (clipper.Step())
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const LiveLine& line = lines[static_cast<std::size_t>(i)];
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      const ImVec2 at = ImGui::GetCursorScreenPos();
      const float height = text_size_of(look, TextRole::number, "x").y, swatch = std::floor(look.px(8));
      const float top = std::floor(at.y + (height - swatch) / 2);
      ImGui::GetWindowDrawList()->AddRectFilled({at.x, top}, {at.x + swatch, top + swatch},
                                                c.memory[static_cast<std::size_t>(line.buffer_class)],
                                                look.px(2));
      ImGui::SetCursorPosX(ImGui::GetCursorPosX() + swatch + look.px(7));
      const std::string shown =
          fitted_name(look, TextRole::number, line.name, ImGui::GetContentRegionAvail().x);
      text(look, TextRole::number, c.text, shown);
      if (shown != line.name) ImGui::SetItemTooltip("%s", line.name.c_str());
      ImGui::TableNextColumn();
      text_right(look, TextRole::number, c.dim, sim::format_count(line.instances));
      ImGui::TableNextColumn();
      text_right(look, TextRole::number, c.predicted, unit.digits(static_cast<double>(line.bytes.value)));
      ImGui::TableNextColumn();
      text_right(look, TextRole::number, c.dim,
                 sim::format_percent(static_cast<double>(line.bytes.value) /
                                     static_cast<double>(std::max<std::int64_t>(1, whole.value))));
    }
  ImGui::EndTable();
}

// As Undo says it once it is made. What Configure has no field for, a switch, has its name in files.
std::string words_of(const sim::Scenario& now, const sim::FitChange& change) {
  const std::string words = differences(now, change.scenario);
  if (!words.empty()) return words;
  const std::size_t space = change.change.rfind(' ');
  const bool off = change.change.substr(space + 1) == "false";
  return (off ? "no " : "with ") + lesson::field_words(change.change.substr(0, space));
}

float fixes_height(const PanelContext& context) {
  const float line = text_size_of(context.look, TextRole::body, "x").y + 2 * ImGui::GetStyle().CellPadding.y;
  const std::size_t rows = std::max<std::size_t>(1, context.prediction.fixes.size());
  return (line + 1) * static_cast<float>(rows + 1) + context.look.px(26);
}

// The single changes that save memory where a scenario does not fit: a click makes one.
void draw_fixes(const PanelContext& context, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const std::vector<sim::FitChange>& fixes = context.prediction.fixes;
  if (!ImGui::BeginChild("fixes", size)) return ImGui::EndChild();
  const bool any = !fixes.empty() && fixes.front().fits;
  text(look, TextRole::title, any ? c.text : c.bad,
       any ? "What would make it fit" : "No single change makes it fit; what saves most");
  const sim::Seconds now = sim::step_time(*context.prediction.report);
  constexpr ImGuiTableFlags flags = ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_PadOuterX;
  if (!fixes.empty() && ImGui::BeginTable("fixes", 4, flags)) {
    ImGui::TableSetupColumn("change", ImGuiTableColumnFlags_WidthStretch);
    // What a change is called stays readable: the step goes first, then how much longer it is.
    constexpr float kLeastName = 150, kNumber = 78, kPadding = 16;
    const std::array<Droppable, 3> numbers = {{{look.px(kNumber + kPadding), 2},
                                               {look.px(kNumber + kPadding), 0},
                                               {look.px(kNumber + kPadding), 1}}};
    const std::vector<bool> shown =
        columns_beside(look.px(kLeastName), numbers, ImGui::GetContentRegionAvail().x);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      ImGui::TableSetupColumn(
          std::array{"peak", "step", "longer"}[i],
          ImGuiTableColumnFlags_WidthFixed | (shown[i] ? 0 : ImGuiTableColumnFlags_Disabled),
          look.px(kNumber));
    ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
    for (const char* heading : {"change", "peak", "step", "step longer"}) {
      ImGui::TableNextColumn();
      (ImGui::TableGetColumnIndex() == 0 ? text : text_right)(look, TextRole::caption, c.dim, heading);
    }
    for (const sim::FitChange& fix : fixes) {
      const std::string words = words_of(context.prediction.scenario, fix);
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      const std::string label =
          fitted(look, TextRole::body, words, ImGui::GetContentRegionAvail().x) + "##" + words;
      if (ImGui::Selectable(label.c_str(), false, ImGuiSelectableFlags_SpanAllColumns))
        context.edit("save memory: " + words, fix.scenario);
      ImGui::TableNextColumn();
      text_right(look, TextRole::number, fix.fits ? c.good : c.bad, sim::format(fix.peak));
      ImGui::TableNextColumn();
      text_right(look, TextRole::number, c.predicted, sim::format(fix.step));
      ImGui::TableNextColumn();
      text_right(look, TextRole::number, c.dim, signed_percent(fix.step / now - 1));
    }
    ImGui::EndTable();
  }
  ImGui::EndChild();
}

std::string caption(const PanelContext& context) {
  return "of one device, " + context.scenario.hardware.name;
}

void draw(const ContextWith<MemoryState>& context) {
  if (draw_missing_prediction(context)) return;
  const Look& look = context.look;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float gap = look.px(12);
  const bool fits = sim::fits(*context.prediction.report);
  if (room.y >= look.px(500)) {
    const float upper = std::floor(std::min(room.y * 0.5f, look.px(420)));
    draw_ledgers(context, {room.x, upper});
    const float lower = ImGui::GetContentRegionAvail().y;
    if (room.x >= look.px(820)) {
      const float left = std::floor(room.x * 0.54f);
      draw_timeline(context, {left, lower});
      ImGui::SameLine(0, gap);
      ImGui::BeginGroup();
      const float fixes = fits ? 0 : std::min(fixes_height(context), lower * 0.6f);
      if (!fits) draw_fixes(context, {room.x - left - gap, fixes});
      draw_peak_table(context, {room.x - left - gap, lower - fixes - (fits ? 0 : gap)});
      ImGui::EndGroup();
    } else {
      draw_timeline(context, {room.x, lower});
    }
    return;
  }
  static constexpr std::array<std::string_view, 3> tabs = {"by category", "over time", "at the peak"};
  if (const auto tab = segmented(look, "tab", static_cast<std::size_t>(context.state.tab), tabs))
    context.state.tab = static_cast<MemoryTab>(*tab);
  const ImVec2 rest = {room.x, ImGui::GetContentRegionAvail().y};
  switch (context.state.tab) {
    case MemoryTab::ledger: {
      draw_ledgers(context,
                   {rest.x, fits ? rest.y : std::max(rest.y * 0.4f, rest.y - fixes_height(context))});
      const float left = ImGui::GetContentRegionAvail().y;
      if (!fits)
        draw_fixes(context, {room.x, left});
      else if (left > look.px(110))
        draw_peak_table(context, {room.x, left});
      return;
    }
    case MemoryTab::timeline: {
      const Categories shown = ledger_of(*context.prediction.report, "", 0).bytes;
      const float legend =
          legend_height(look, legend_of(look, shown), room.x) + ImGui::GetStyle().ItemSpacing.y;
      draw_timeline(context, {rest.x, rest.y - legend});
      return draw_legend(look, legend_of(look, shown), room.x);
    }
    case MemoryTab::peak:
      return draw_peak_table(context, rest);
  }
}

FigurePlot timeline_figure(const PanelContext& context) {
  const Palette& c = context.look.color();
  const std::vector<TimelinePart> parts = timeline_parts(context);
  FigurePlot plot{{parts.size() > 1 ? "time from the start" : "time in a step", Measure::seconds},
                  {"memory", Measure::bytes},
                  {}};
  constexpr std::size_t kColumns = 600;
  Stack stack;
  for (const TimelinePart& part : parts) {
    Stack one = stack_of(*part.points, part.begin, 1, 1, kColumns / parts.size());
    hold_until(one, part.begin + context.prediction.report->step_time.value);
    stack.time.insert(stack.time.end(), one.time.begin(), one.time.end());
    for (std::size_t edge = 0; edge < stack.edge.size(); ++edge)
      stack.edge[edge].insert(stack.edge[edge].end(), one.edge[edge].begin(), one.edge[edge].end());
  }
  for (int category = sim::kBufferClasses - 1; category >= 0; --category) {
    const auto at = static_cast<std::size_t>(category);
    if (stack.edge[at] == stack.edge[at + 1]) continue;
    FigureCurve area{std::string(memory_category_title(category)), c.memory[at], Mark::area, {}};
    for (std::size_t i = 0; i < stack.time.size(); ++i)
      area.points.push_back({stack.time[i], stack.edge[at + 1][i], stack.edge[at][i]});
    plot.curves.push_back(std::move(area));
  }
  const std::vector<TimelinePart> measured = measured_parts(context, parts.back().begin);
  FigureCurve line{"measured", c.measured, Mark::line, {}};
  for (const TimelinePart& part : measured) {
    const Stack real = stack_of(*part.points, part.begin, 1, 1, kColumns / measured.size());
    for (std::size_t i = 0; i < real.time.size(); ++i)
      line.points.push_back({real.time[i], real.edge.back()[i]});
  }
  if (!measured.empty()) plot.curves.push_back(std::move(line));
  if (const auto* steps = measured_steps(context)) {
    FigureCurve in_use{"in use after a step, as the system says", c.measured, Mark::dots, {}};
    for (const sim::StepMemoryEvent& step : *steps)
      if (in_use.points.size() < kFirstSteps)
        in_use.points.push_back({(step.begin - steps->front().begin + step.duration).value,
                                 static_cast<double>(step.in_use.value)});
    plot.curves.push_back(std::move(in_use));
  }
  plot.limits = {{"the device's memory", static_cast<double>(context.scenario.hardware.memory.value), c.bad}};
  return plot;
}

std::vector<Figure> figures(const PanelContext& context) {
  if (!context.prediction.report) return {};
  const Palette& c = context.look.color();
  const double capacity = static_cast<double>(context.scenario.hardware.memory.value);
  FigureBars bars{Measure::bytes, {}, {}, FigureLimit{text_of(capacity, Measure::bytes), capacity, c.bad}};
  const std::vector<Ledger> rows = ledgers(context);
  for (int category = 0; category < kMemoryCategories; ++category)
    bars.parts.push_back(
        {std::string(memory_category_title(category)), c.memory[static_cast<std::size_t>(category)]});
  for (const Ledger& row : rows) bars.rows.push_back({row.label, {row.bytes.begin(), row.bytes.end()}});
  std::vector<Figure> all = {{"Memory at the peak", std::move(bars)}};
  if (context.prediction.report->memory_timeline.size() > 1)
    all.push_back(
        {timeline_parts(context).size() > 1 ? "Memory of the first four steps" : "Memory over a step",
         timeline_figure(context)});
  if (!context.prediction.live_at_peak.empty()) {
    FigureTable live{
        {{"live at the peak"}, {"category"}, {"count", Measure::count}, {"size", Measure::bytes}}, {}};
    for (const LiveLine& line : context.prediction.live_at_peak)
      live.rows.push_back({line.name, std::string(memory_category_title(static_cast<int>(line.buffer_class))),
                           static_cast<double>(line.instances), static_cast<double>(line.bytes.value)});
    all.push_back({"Live at the peak", std::move(live)});
  }
  if (!context.prediction.fixes.empty()) {
    FigureTable fixes{{{"change"}, {"peak", Measure::bytes}, {"step", Measure::seconds}}, {}};
    for (const sim::FitChange& fix : context.prediction.fixes)
      fixes.rows.push_back(
          {words_of(context.prediction.scenario, fix), static_cast<double>(fix.peak.value), fix.step.value});
    all.push_back({"What would make it fit", std::move(fixes)});
  }
  return all;
}

}  // namespace

extern const PanelEntry memory_panel = {"memory", "Memory", "what fills the device, and when",
                                        Dock::upper_left, panel_of<MemoryState, caption, draw, figures>};

}  // namespace app::gui
