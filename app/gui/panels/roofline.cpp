// Every operation under the ceilings of its machine: arithmetic intensity against the rate that it reaches.
#include "app/gui/panels/roofline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "app/counted.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/presets.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/plot.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"

namespace app::gui {
namespace {

struct Dot {
  std::string key;                 // phase and id
  std::string label;               // as short as it is unambiguous here
  double intensity = 0, rate = 0;  // FLOP per byte, FLOP/s
  double share = 0;                // of the time
  const sim::Row* row = nullptr;
  const sim::Row* measured = nullptr;
  double measured_share = 0;
};

std::string key_of(const sim::Row& row) {
  return std::string(sim::name(row.phase)) + " " + row.id;
}

// "layer.attention.qkv.forward" -> "attention.qkv"; what is not the plain forward pass says so.
std::string short_name(const sim::Row& row) {
  std::string name = row.id;
  const auto strip = [&name](std::string_view suffix) {
    if (!name.ends_with(suffix)) return false;
    name.resize(name.size() - suffix.size());
    return true;
  };
  strip(".forward");
  if (strip(".backward")) name.append(" bwd");
  if (name.starts_with("layer.")) name.erase(0, 6);
  if (row.phase == sim::Phase::prefill || row.phase == sim::Phase::recompute)
    name.append(", ").append(sim::name(row.phase));
  return name;
}

struct Cloud {
  std::vector<Dot> dots;     // longest first
  double without_share = 0;  // of the step, of operations that do no arithmetic
};

Cloud cloud_of(const PanelContext& context) {
  Cloud cloud;
  const sim::Report& report = *context.prediction.report;
  const sim::Report* measured = context.run().measured.get();
  if (measured && !(measured->source.scenario == context.scenario)) measured = nullptr;
  std::map<std::string, const sim::Row*> measured_rows;
  double measured_whole = 0;
  if (measured)
    for (const sim::Row& row : measured->rows)
      if (row.rank == 0 && row.duration.value > 0) {
        measured_rows[key_of(row)] = &row;
        measured_whole += row.duration.value;
      }
  const double whole = sim::step_parts(report, 0).whole.value;
  if (whole <= 0) return cloud;
  for (const sim::Row& row : report.rows) {
    if (row.rank != 0) continue;
    const double share = row.duration.value / whole;
    if (row.network.value > 0 || row.kind == sim::OpKind::receive) continue;  // the footnote has their share
    if (!(row.flops.value > 0) || row.memory.value <= 0 || !(row.duration.value > 0)) {
      cloud.without_share += share;
      continue;
    }
    Dot dot{key_of(row), short_name(row), row.flops / row.memory, (row.flops / row.duration).value, share,
            &row};
    const auto found = measured_rows.find(dot.key);
    if (found != measured_rows.end()) {
      dot.measured = found->second;
      dot.measured_share = dot.measured->duration.value / measured_whole;
    }
    cloud.dots.push_back(std::move(dot));
  }
  std::stable_sort(cloud.dots.begin(), cloud.dots.end(),
                   [](const Dot& a, const Dot& b) { return a.share > b.share; });
  return cloud;
}

// What has no place under a roof, as shares of the step; the last two are those of Overview.
std::string words_of_what_is_not_drawn(const PanelContext& context, const Cloud& cloud) {
  const sim::StepParts parts = sim::step_parts(*context.prediction.report);
  std::string list;
  const auto add = [&](std::string_view what, double share) {
    if (share < 0.0005) return;
    list.append(list.empty() ? "" : ", ").append(what).append(" ").append(sim::format_percent(share));
  };
  add("moving data in memory", cloud.without_share);
  add(sim::name(sim::StepPart::network), parts.share(sim::StepPart::network));
  add(sim::name(sim::StepPart::bubble), parts.share(sim::StepPart::bubble));
  const bool train = context.prediction.report->source.scenario.workload.task == sim::Task::train;
  return list.empty() ? "" : "Not drawn: " + list + (train ? " of the step" : " of the generation");
}

struct Machine {
  double peak = 0, bandwidth = 0;  // FLOP/s, B/s
  double ridge() const { return peak / bandwidth; }
};

constexpr double kWorthAFrame = 0.001;  // of the time

using Frame = RooflineFrame;

// The device's memories; where the file of caches cannot be read, those that the hardware says itself.
const RooflineDevice& device_of(RooflineDevice& read, const sim::Hardware& hardware) {
  if (read.hardware == hardware) return read;
  read = {hardware, {}};
  try {
    read.levels = sim::memory_levels(hardware);
  } catch (const sim::PresetError&) {
  }
  return read;
}

// Null: none is asked for, it is the scenario's own, or it has no arithmetic of this type.
const RooflineDevice* second_device(RooflineState& state, const sim::Scenario& scenario) {
  if (state.second.empty() || state.second == scenario.hardware.name) return nullptr;
  if (state.second_device.hardware.name != state.second) try {
      device_of(state.second_device, sim::load_hardware_preset(state.second));
    } catch (const sim::PresetError&) {
      return nullptr;
    }
  const sim::Hardware& hardware = state.second_device.hardware;
  return hardware.has_peak_for(scenario.workload.dtype) && hardware.memory_bandwidth.value > 0
             ? &state.second_device
             : nullptr;
}

// The other types' peaks, with the names of those that share one: what another dtype would allow.
std::map<double, std::string> other_peaks(const sim::Hardware& hardware, const Machine& machine) {
  std::map<double, std::string> peaks;
  for (const auto& [dtype, peak] : hardware.peak) {
    // Far above, it would squeeze what is to be seen.
    if (std::abs(std::log10(peak.value / machine.peak)) < 0.02 || peak.value > 2.5 * machine.peak) continue;
    std::string& names = peaks[peak.value];
    if (!names.empty()) names += ", ";
    names += sim::name(dtype);
  }
  return peaks;
}

Frame frame_of(const Cloud& cloud, const Machine& machine, double highest_peak) {
  double low = machine.ridge(), high = machine.ridge(), slow = machine.peak;
  for (const Dot& dot : cloud.dots) {
    // One scalar operation would stretch the axes by decades: it is there when one zooms out.
    if (std::max(dot.share, dot.measured_share) < kWorthAFrame) continue;
    low = std::min(low, dot.intensity);
    high = std::max(high, dot.intensity);
    slow = std::min(slow, dot.rate);
    if (!dot.measured) continue;
    slow = std::min(slow, (dot.measured->flops / dot.measured->duration).value);
    low = std::min(low, dot.measured->flops / dot.measured->memory);
    high = std::max(high, dot.measured->flops / dot.measured->memory);
  }
  Frame frame;
  frame.x_low = std::pow(10, std::floor(std::log10(low) * 2) / 2 - 0.25);
  frame.x_high = std::max(std::pow(10, std::log10(high) + 0.6), machine.ridge() * 10);
  frame.y_low = std::min(slow / 2.5, machine.bandwidth * frame.x_low);
  frame.y_high = highest_peak * 2.5;
  // None of those that are in sight anyway is cut by the frame.
  const Frame before = frame;
  for (const Dot& dot : cloud.dots)
    if (dot.intensity > before.x_low && dot.rate > before.y_low) {
      frame.x_low = std::min(frame.x_low, dot.intensity / 1.2);
      frame.y_low = std::min(frame.y_low, dot.rate / 1.2);
    }
  return frame;
}

using Peaks = std::map<double, std::string>;  // FLOP/s, names of the types

ImVec2 pixels(double intensity, double rate) {
  return ImPlot::PlotToPixels(intensity, rate);
}

// All but the device's own memory, whose roof is the panel's.
std::vector<const sim::MemoryLevel*> other_levels(const RooflineDevice& device) {
  std::vector<const sim::MemoryLevel*> others;
  for (const sim::MemoryLevel& level : device.levels)
    if (level.bandwidth.value != device.hardware.memory_bandwidth.value) others.push_back(&level);
  return others;
}

// "L2 8,986 GB/s".
std::string words_of(const sim::MemoryLevel& level) {
  return level.name + " " + sim::format(level.bandwidth);
}

// A roof from the left end up to the peak and on to the right, as far as it is in the frame.
std::vector<ImVec2> roof_of(double bandwidth, double peak, const Frame& frame) {
  const double ridge = std::clamp(peak / bandwidth, frame.x_low, frame.x_high);
  std::vector<ImVec2> roof = {pixels(frame.x_low, std::min(peak, bandwidth * frame.x_low)),
                              pixels(ridge, std::min(peak, bandwidth * ridge))};
  if (ridge < frame.x_high) roof.push_back(pixels(frame.x_high, peak));
  return roof;
}

void draw_levels(const Look& look, const RooflineDevice& device, const Machine& machine, const Frame& frame,
                 LabelPlacer& labels) {
  ImDrawList* list = ImPlot::GetPlotDrawList();
  for (const sim::MemoryLevel* level : other_levels(device)) {
    const std::vector<ImVec2> roof = roof_of(level->bandwidth.value, machine.peak, frame);
    list->AddLine(roof[0], roof[1], with_alpha(look.color().ceiling, 0.55f), look.px(1.2f));
    labels.block_line(roof[0], roof[1], look.px(1.5f));
  }
}

float radius_of(const Look& look, double share) {
  // Area is time.
  return std::max(look.px(2.5f), look.px(32) * static_cast<float>(std::sqrt(share)));
}

bool is_inside(ImVec2 at, ImVec2 least, ImVec2 most) {
  return at.x >= least.x && at.x <= most.x && at.y >= least.y && at.y <= most.y;
}

// A small dot, or where it lies beyond the frame an arrow at its edge that points there; where that is.
ImVec2 dot_or_arrow(const Look& look, ImDrawList* list, ImVec2 at, ImVec2 least, ImVec2 most, ImU32 color) {
  const float radius = look.px(3);
  if (is_inside(at, least, most)) {
    list->AddCircleFilled(at, radius, color);
    return at;
  }
  const float size = look.px(5);
  const ImVec2 tip = {std::clamp(at.x, least.x + 1, most.x - 1), std::clamp(at.y, least.y + 1, most.y - 1)};
  const float length = std::max(1.0f, std::hypot(at.x - tip.x, at.y - tip.y));
  const ImVec2 along = {(at.x - tip.x) / length, (at.y - tip.y) / length}, across = {-along.y, along.x};
  const ImVec2 foot = {tip.x - 1.6f * size * along.x, tip.y - 1.6f * size * along.y};
  list->AddTriangleFilled(tip, {foot.x + size * across.x, foot.y + size * across.y},
                          {foot.x - size * across.x, foot.y - size * across.y}, color);
  return tip;
}

// The operations of the scenario on the second device, if it can be there; null while it is not predicted.
const sim::Report* report_beside(const ContextWith<RooflineState>& context, const RooflineDevice& second) {
  RooflineState& state = context.state;
  sim::Scenario scenario = context.prediction.report->source.scenario;
  scenario.hardware = second.hardware;
  state.beside.follow({scenario, state.calibrations.of(second.hardware)});
  const Prediction* const found = state.beside.result();
  return found && found->scenario == scenario ? found->report.get() : nullptr;
}

// Whether an operation has a place under a roof.
bool has_place(const sim::Row& row) {
  return row.rank == 0 && row.flops.value > 0 && row.memory.value > 0 && row.duration.value > 0;
}

// Operations of another report as rings, whose areas are shares of its time.
void draw_rings(const Look& look, const sim::Report& report, ImU32 color) {
  const double whole = sim::step_parts(report, 0).whole.value;
  for (const sim::Row& row : report.rows)
    if (has_place(row))
      ImPlot::GetPlotDrawList()->AddCircle(pixels(row.flops / row.memory, (row.flops / row.duration).value),
                                           radius_of(look, whole > 0 ? row.duration.value / whole : 0), color,
                                           0, look.px(1.4f));
}

void draw_second(const Look& look, const Machine& second, const Frame& frame, LabelPlacer& labels) {
  const std::vector<ImVec2> roof = roof_of(second.bandwidth, second.peak, frame);
  dashed_line(ImPlot::GetPlotDrawList(), look, roof, look.color().warn, 1.8f);
  for (std::size_t i = 0; i + 1 < roof.size(); ++i) labels.block_line(roof[i], roof[i + 1], look.px(2));
}

void draw_ceilings(const PanelContext& context, const Machine& machine, const Peaks& others,
                   const Frame& frame, LabelPlacer& labels) {
  const Look& look = context.look;
  const Palette& c = look.color();
  ImDrawList* list = ImPlot::GetPlotDrawList();
  const ImU32 quiet = with_alpha(c.mute, 0.5f);
  for (const auto& [peak, names] : others) {
    const ImVec2 from = pixels(peak / machine.bandwidth, peak), to = pixels(frame.x_high, peak);
    if (peak > machine.peak) list->AddLine(pixels(machine.ridge(), machine.peak), from, quiet, look.px(1));
    list->AddLine(from, to, quiet, look.px(1));
    labels.block_line(from, to, look.px(1));
  }
  const ImVec2 foot = pixels(frame.x_low, machine.bandwidth * frame.x_low);
  const ImVec2 ridge = pixels(machine.ridge(), machine.peak);
  const ImVec2 end = pixels(frame.x_high, machine.peak);
  const ImVec2 roof[] = {foot, ridge, end};
  list->AddPolyline(roof, 3, c.ceiling, look.px(2));
  const float radius = look.px(4.5f);
  list->AddCircleFilled(ridge, radius, c.ceiling);
  labels.block_line(foot, ridge, look.px(2));
  labels.block_line(ridge, end, look.px(2));
  labels.block({ridge.x - radius, ridge.y - radius}, {ridge.x + radius, ridge.y + radius});
}

// Where they hide nothing: the ridge point, this type's peak, the bandwidth, then the other types.
void name_ceilings(const PanelContext& context, const Machine& machine, const Peaks& others,
                   const RooflineDevice* levels, const RooflineDevice* second, const Frame& frame,
                   LabelPlacer& labels) {
  const Look& look = context.look;
  const Palette& c = look.color();
  ImDrawList* list = ImPlot::GetPlotDrawList();
  const auto write = [&](const std::string& words, ImU32 color, const auto& corners_of) {
    const ImVec2 size = text_size_of(look, TextRole::caption, words);
    ImVec2 position;
    if (labels.place_at(corners_of(size), size, position))
      draw_text(list, look, TextRole::caption, position, color, words);
  };
  const ImVec2 foot = pixels(frame.x_low, machine.bandwidth * frame.x_low);
  const ImVec2 ridge = pixels(machine.ridge(), machine.peak);
  const ImVec2 end = pixels(frame.x_high, machine.peak);
  const float gap = look.px(5);

  char number[32];
  std::snprintf(number, sizeof number, "%.3g", machine.ridge());
  write(std::string("ridge point ") + number + " FLOP/B", c.text, [&](ImVec2 size) {
    return std::array<ImVec2, 3>{{{ridge.x - size.x - gap, ridge.y - size.y - gap},
                                  {ridge.x - size.x / 2, ridge.y - size.y - 2 * gap},
                                  {ridge.x + gap, ridge.y + gap}}};
  });
  const std::string peak = sim::format(sim::FlopsPerSecond{machine.peak}) + " " +
                           std::string(sim::name(context.scenario.workload.dtype));
  // From the line's end towards the ridge, above it and else below.
  const auto along_line = [&](ImVec2 right, float from_x, ImVec2 size) {
    std::vector<ImVec2> corners;
    for (const float y : {right.y - size.y - gap, right.y + gap})
      for (float x = right.x - size.x - gap; x > from_x; x -= size.x / 2) corners.push_back({x, y});
    return corners;
  };
  write(peak, c.text, [&](ImVec2 size) { return along_line(end, ridge.x, size); });
  // Beside a rising line, above it or below.
  const auto beside_line = [&](ImVec2 begin, ImVec2 end_of_line, ImVec2 size) {
    std::vector<ImVec2> corners;
    for (const float share : {0.55f, 0.7f, 0.4f, 0.85f, 0.25f, 0.62f, 0.48f, 0.33f, 0.77f, 0.18f, 0.1f}) {
      const ImVec2 at = {begin.x + (end_of_line.x - begin.x) * share,
                         begin.y + (end_of_line.y - begin.y) * share};
      corners.push_back({at.x - size.x - 2 * gap, at.y - size.y - gap});
      corners.push_back({at.x + 2 * gap, at.y + gap});
      corners.push_back({at.x - size.x - gap, at.y - size.y});
      corners.push_back({at.x + gap, at.y});
    }
    return corners;
  };
  write((levels ? "memory " : "") + sim::format(context.scenario.hardware.memory_bandwidth), c.dim,
        [&](ImVec2 size) { return beside_line(foot, ridge, size); });
  if (second) {
    const sim::Hardware& hardware = second->hardware;
    const Machine other = {hardware.peak_for(context.scenario.workload.dtype).value,
                           hardware.memory_bandwidth.value};
    const std::vector<ImVec2> roof = roof_of(other.bandwidth, other.peak, frame);
    write(hardware.name + " " + sim::format(sim::FlopsPerSecond{other.peak}), c.warn,
          [&](ImVec2 size) { return along_line(roof.back(), roof[1].x, size); });
    write(hardware.name + " " + sim::format(hardware.memory_bandwidth), c.warn,
          [&](ImVec2 size) { return beside_line(roof[0], roof[1], size); });
  }
  if (levels)
    for (const sim::MemoryLevel* level : other_levels(*levels)) {
      const std::vector<ImVec2> roof = roof_of(level->bandwidth.value, machine.peak, frame);
      write(words_of(*level), c.mute, [&](ImVec2 size) { return beside_line(roof[0], roof[1], size); });
    }
  for (const auto& [value, names] : others)
    write(names, c.mute, [&](ImVec2 size) {
      return along_line(pixels(frame.x_high, value), pixels(value / machine.bandwidth, value).x, size);
    });
}

void describe(const PanelContext& context, const Dot& dot) {
  const Look& look = context.look;
  const Palette& c = look.color();
  ImGui::BeginTooltip();
  text(look, TextRole::title, c.text, dot.key);
  const auto line = [&](ImU32 color, const std::string& words) {
    text(look, TextRole::number, color, words);
  };
  char number[32];
  std::snprintf(number, sizeof number, "%.3g FLOP/B", dot.intensity);
  line(c.dim, sim::format(dot.row->flops) + " over " + sim::format(dot.row->memory) + " = " + number);
  line(c.predicted, "predicted " + sim::format(dot.row->duration) + ", " +
                        sim::format(sim::FlopsPerSecond{dot.rate}) + ", " + sim::format_percent(dot.share) +
                        " of the time");
  if (dot.measured)
    line(c.measured, "measured " + sim::format(dot.measured->duration) + ", " +
                         sim::format(dot.measured->flops / dot.measured->duration));
  line(c.dim,
       "bound by " + std::string(sim::name(dot.row->bound)) + ", run " + counted(dot.row->count, "time"));
  ImGui::EndTooltip();
}

std::string caption(const PanelContext& context) {
  return context.scenario.hardware.name + ", " + std::string(sim::name(context.scenario.workload.dtype)) +
         ", a dot an operation, area = time";
}

// Whether the axes are other than they were set to, and still show where the roof bends.
void note_zoom(RooflineState& state, const Machine& machine) {
  const ImPlotRect shown = ImPlot::GetPlotLimits();
  const auto differs = [](double a, double b) { return std::abs(std::log(a / b)) > 1e-6; };
  const Frame& f = *state.fitted;
  state.zoomed = differs(shown.X.Min, f.x_low) || differs(shown.X.Max, f.x_high) ||
                 differs(shown.Y.Min, f.y_low) || differs(shown.Y.Max, f.y_high);
  const bool asked = ImPlot::IsPlotHovered() && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left);
  if (asked || !shown.Contains(machine.ridge(), machine.peak)) state.fitted.reset();
}

// Which roofs are drawn, in a row that a low panel has no room for.
void draw_choices(const ContextWith<RooflineState>& context) {
  const Look& look = context.look;
  RooflineState& state = context.state;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  if (room.y < look.px(260) || room.x < look.px(360)) return;
  if (!other_levels(device_of(state.first_device, context.scenario.hardware)).empty()) {
    ImGui::Checkbox("caches and host link", &state.shows_levels);
    ImGui::SameLine(0, look.px(16));
  }
  text(look, TextRole::body, look.color().dim, "beside");
  ImGui::SameLine();
  constexpr const char* kNone = "no other device";
  if (begin_picker(look, "second", state.second.empty() ? kNone : state.second, look.px(200))) {
    if (ImGui::Selectable(kNone, state.second.empty())) state.second.clear();
    for (const std::string& name : preset_choices(sim::PresetKind::hardware))
      if (name != sim::kThisMachine && name != context.scenario.hardware.name &&
          ImGui::Selectable(name.c_str(), name == state.second))
        state.second = name;
    end_picker();
  }
}

void draw(const ContextWith<RooflineState>& context) {
  if (draw_missing_prediction(context)) return;
  const Look& look = context.look;
  const Palette& c = look.color();
  const sim::Scenario& scenario = context.prediction.report->source.scenario;
  const Machine machine = {scenario.hardware.peak_for(scenario.workload.dtype).value,
                           scenario.hardware.memory_bandwidth.value};
  const Cloud cloud = cloud_of(context);
  draw_choices(context);
  const RooflineDevice* const second = second_device(context.state, scenario);
  const RooflineDevice* const levels =
      context.state.shows_levels ? &device_of(context.state.first_device, scenario.hardware) : nullptr;
  // Beside a second device the other types' peaks would be a third thing.
  Peaks others = second ? Peaks{} : other_peaks(scenario.hardware, machine);
  double highest = others.empty() ? machine.peak : std::max(machine.peak, others.rbegin()->first);
  if (second) highest = std::max(highest, second->hardware.peak_for(scenario.workload.dtype).value);
  const Frame frame = frame_of(cloud, machine, highest);
  const std::string not_drawn = words_of_what_is_not_drawn(context, cloud);
  const bool tells_without = !not_drawn.empty();
  const float note =
      tells_without ? text_size_of(look, TextRole::caption, "x").y + ImGui::GetStyle().ItemSpacing.y : 0;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const TextScope axes(look, TextRole::caption);
  ImPlot::PushStyleVar(ImPlotStyleVar_MinorAlpha, 0.0f);  // decades alone
  const bool drawn =
      ImPlot::BeginPlot("##roofline", {room.x, room.y - note}, ImPlotFlags_CanvasOnly | ImPlotFlags_NoFrame);
  if (!drawn) return ImPlot::PopStyleVar();
  const ScaleUnit unit = flop_rate_unit(machine.peak);
  name_axes(look, "FLOP per byte of memory traffic", unit.name, {room.x, room.y - note});
  ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
  ImPlot::SetupAxisScale(ImAxis_Y1, ImPlotScale_Log10);
  label_axis(ImAxis_Y1, unit);
  label_axis(ImAxis_X1);
  RooflineState& state = context.state;
  if (context.frozen || !state.fitted || (!state.zoomed && !(*state.fitted == frame))) {
    ImPlot::SetupAxesLimits(frame.x_low, frame.x_high, frame.y_low, frame.y_high, ImPlotCond_Always);
    state.fitted = frame;
  }
  if (!state.zoomed) {
    // None so near to the end that its label would be cut.
    const ImVec2 label = text_size_of(look, TextRole::caption, "100,000");
    const double end = std::pow(frame.x_high / frame.x_low, label.x / 2 / room.x);
    // Decades alone.
    const auto ticks = [](double low, double high, float wanted) {
      return std::clamp(static_cast<int>(wanted), 2,
                        std::max(2, 2 * static_cast<int>(std::log10(high / low)) - 1));
    };
    decade_axis(ImAxis_X1, frame.x_low, frame.x_high / end,
                ticks(frame.x_low, frame.x_high, room.x / (1.5f * label.x)));
    decade_axis(ImAxis_Y1, frame.y_low, frame.y_high,
                ticks(frame.y_low, frame.y_high, (room.y - note) / (2.5f * label.y)));
  }
  ImPlot::PushPlotClipRect();
  ImDrawList* list = ImPlot::GetPlotDrawList();
  const ImVec2 least = ImPlot::GetPlotPos();
  const ImVec2 most = {least.x + ImPlot::GetPlotSize().x, least.y + ImPlot::GetPlotSize().y};
  LabelPlacer labels({least.x + look.px(3), least.y + look.px(2)},
                     {most.x - look.px(3), most.y - look.px(2)});
  // A line so near to this type's own that no name fits between them says nothing.
  const float own = pixels(machine.ridge(), machine.peak).y;
  const float nearest_line = 1.4f * text_size_of(look, TextRole::caption, "x").y;
  std::erase_if(others, [&](const auto& other) {
    return std::abs(pixels(machine.ridge(), other.first).y - own) < nearest_line;
  });
  if (levels) draw_levels(look, *levels, machine, frame, labels);
  if (second)
    draw_second(
        look,
        {second->hardware.peak_for(scenario.workload.dtype).value, second->hardware.memory_bandwidth.value},
        frame, labels);
  draw_ceilings(context, machine, others, frame, labels);

  if (const Pin* baseline = context.pins.baseline())
    draw_rings(look, *baseline->report, pin_color(look, *baseline));
  if (second)
    if (const sim::Report* report = report_beside(context, *second)) draw_rings(look, *report, c.warn);
  const Dot* hovered = nullptr;
  float nearest = look.px(14);
  const ImVec2 mouse = ImGui::GetMousePos();
  for (const Dot& dot : cloud.dots) {
    const ImVec2 centre = ImPlot::PlotToPixels(dot.intensity, dot.rate);
    const float radius = radius_of(look, dot.share);
    if (!is_inside(centre, least, most)) continue;
    const bool selected =
        context.view.selection.quantity == Quantity::operation && context.view.selection.operation == dot.key;
    list->AddCircleFilled(centre, radius, with_alpha(c.predicted, 0.28f));
    list->AddCircle(centre, radius, selected ? c.text : c.predicted, 0, look.px(selected ? 2.0f : 1.4f));
    labels.block({centre.x - radius, centre.y - radius}, {centre.x + radius, centre.y + radius});
    float distance = std::hypot(mouse.x - centre.x, mouse.y - centre.y) - radius;
    if (dot.measured) {
      const ImVec2 real = ImPlot::PlotToPixels(dot.measured->flops / dot.measured->memory,
                                               (dot.measured->flops / dot.measured->duration).value);
      const ImVec2 seen = dot_or_arrow(look, list, real, least, most, c.measured);
      list->AddLine(centre, seen, with_alpha(c.measured, 0.7f), look.px(1));
      labels.block_line(centre, seen, look.px(1.5f));
      labels.block({seen.x - look.px(3), seen.y - look.px(3)}, {seen.x + look.px(3), seen.y + look.px(3)});
      distance = std::min(distance, std::hypot(mouse.x - seen.x, mouse.y - seen.y) - look.px(3));
    }
    if (distance < nearest) {
      nearest = distance;
      hovered = &dot;
    }
  }
  name_ceilings(context, machine, others, levels, second, frame, labels);
  for (const Dot& dot : cloud.dots) {
    const ImVec2 centre = ImPlot::PlotToPixels(dot.intensity, dot.rate);
    ImVec2 position;
    if (labels.place(centre, radius_of(look, dot.share) + look.px(3),
                     text_size_of(look, TextRole::caption, dot.label), position))
      draw_text(list, look, TextRole::caption, position, c.dim, dot.label);
  }
  ImPlot::PopPlotClipRect();
  if (hovered && ImPlot::IsPlotHovered()) {
    describe(context, *hovered);
    context.view.hovered_operation = hovered->key;
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left))
      context.view.selection = {Quantity::operation, 0, hovered->key};
  }
  note_zoom(state, machine);
  ImPlot::EndPlot();
  ImPlot::PopStyleVar();
  if (tells_without)
    text_fitted(look, TextRole::caption, c.mute, not_drawn, ImGui::GetContentRegionAvail().x);
}

std::vector<Figure> figures(const ContextWith<RooflineState>& context) {
  if (!context.prediction.report) return {};
  const Palette& c = context.look.color();
  const sim::Scenario& scenario = context.prediction.report->source.scenario;
  const Machine machine = {scenario.hardware.peak_for(scenario.workload.dtype).value,
                           scenario.hardware.memory_bandwidth.value};
  if (!(machine.peak > 0 && machine.bandwidth > 0)) return {};
  const Cloud cloud = cloud_of(context);
  const Frame frame = frame_of(cloud, machine, machine.peak);
  FigurePlot plot{{"intensity", Measure::flops_per_byte, true},
                  {"rate", Measure::flops_per_second, true},
                  {{std::string("roof, ") + std::string(sim::name(scenario.workload.dtype)),
                    c.text,
                    Mark::line,
                    {{frame.x_low, machine.bandwidth * frame.x_low},
                     {machine.ridge(), machine.peak},
                     {frame.x_high, machine.peak}}}},
                  {{"ridge point", machine.ridge(), c.mute, true}}};
  const auto add_roof = [&](std::string name, ImU32 color, Mark mark, double bandwidth, double peak) {
    const double ridge = std::clamp(peak / bandwidth, frame.x_low, frame.x_high);
    plot.curves.push_back({std::move(name),
                           color,
                           mark,
                           {{frame.x_low, std::min(peak, bandwidth * frame.x_low)},
                            {ridge, std::min(peak, bandwidth * ridge)},
                            {frame.x_high, std::min(peak, bandwidth * frame.x_high)}}});
  };
  if (context.state.shows_levels)
    for (const sim::MemoryLevel* level :
         other_levels(device_of(context.state.first_device, scenario.hardware)))
      add_roof(words_of(*level), c.mute, Mark::line, level->bandwidth.value, machine.peak);
  if (const RooflineDevice* second = second_device(context.state, scenario)) {
    add_roof("roof, " + second->hardware.name, c.warn, Mark::dashed, second->hardware.memory_bandwidth.value,
             second->hardware.peak_for(scenario.workload.dtype).value);
    if (const sim::Report* report = report_beside(context, *second)) {
      FigureCurve dots{"on " + second->hardware.name, c.warn, Mark::dots, {}};
      for (const sim::Row& row : report->rows)
        if (has_place(row)) {
          dots.points.push_back({row.flops / row.memory, (row.flops / row.duration).value});
          dots.names.push_back(key_of(row));
        }
      plot.curves.push_back(std::move(dots));
    }
  }
  plot.x.drawn = FigureRange{frame.x_low, frame.x_high};
  plot.y.drawn = FigureRange{frame.y_low, frame.y_high};
  FigureCurve predicted{"predicted", c.predicted, Mark::dots, {}},
      measured{"measured", c.measured, Mark::dots, {}};
  FigureTable table{{{"operation"},
                     {"intensity", Measure::flops_per_byte},
                     {"predicted rate", Measure::flops_per_second},
                     {"measured rate", Measure::flops_per_second},
                     {"share of the time", Measure::share},
                     {"bound by"}},
                    {}};
  for (const Dot& dot : cloud.dots) {
    predicted.points.push_back({dot.intensity, dot.rate});
    predicted.names.push_back(dot.key);
    predicted.weights.push_back(dot.share);
    Cell real;
    if (dot.measured) {
      const double rate = (dot.measured->flops / dot.measured->duration).value;
      measured.points.push_back({dot.measured->flops / dot.measured->memory, rate});
      measured.names.push_back(dot.key);
      real = rate;
    }
    table.rows.push_back(
        {dot.key, dot.intensity, dot.rate, real, dot.share, std::string(sim::name(dot.row->bound))});
  }
  plot.curves.push_back(std::move(predicted));
  if (!measured.points.empty()) plot.curves.push_back(std::move(measured));
  return {{"Roofline", std::move(plot)}, {"Operations under the roof", std::move(table)}};
}

}  // namespace

RooflineState::RooflineState(const PanelTools& tools)
    : calibrations(tools.calibrations),
      beside(tools.studies.add<PredictionQuestion, Prediction>(
          [](const PredictionQuestion& question, const auto&) {
            return make_prediction(question.scenario, question.calibration.get(), [] { return true; });
          })) {}

extern const PanelEntry roofline_panel = {"roofline", "Roofline", "what bounds each operation",
                                          Dock::upper_right, panel_of<RooflineState, caption, draw, figures>};

}  // namespace app::gui
