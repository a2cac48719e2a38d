// What one length or batch does to memory and speed, all else as it is.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"

namespace app::gui {
namespace {

struct SweptField {
  std::string_view words, unit;
  std::int64_t sim::Workload::*value;
};
std::span<const SweptField> fields_of(sim::Task task) {
  using W = sim::Workload;
  static constexpr std::array<SweptField, 3> train = {{{"sequence", "tokens", &W::seq_len},
                                                       {"micro-batch", "sequences", &W::micro_batch_size},
                                                       {"global batch", "sequences", &W::global_batch_size}}};
  static constexpr std::array<SweptField, 3> generate = {{{"prompt", "tokens", &W::prompt_length},
                                                          {"new tokens", "a sequence", &W::max_new_tokens},
                                                          {"batch", "sequences", &W::batch_size}}};
  return task == sim::Task::train ? train : generate;
}

struct SweepRequest {
  sim::Scenario scenario;
  std::shared_ptr<const sim::Calibration> calibration;  // of the scenario's hardware; may be null
  std::int64_t sim::Workload::*field = nullptr;
  bool operator==(const SweepRequest&) const = default;
};

struct SweepPoint {
  std::int64_t value = 0;
  double memory = 0, tokens_per_second = 0;  // bytes of the fullest device; of all devices
};
struct Sweep {
  std::vector<SweepPoint> points;  // by value
};
using SweepStudy = Study<SweepRequest, Sweep>;

// Halves and doubles of what the field is now, as far as they are legal.
Sweep sweep(const SweepRequest& request, const SweepStudy::Course& course) {
  constexpr int kHalvings = 6, kDoublings = 6;
  const std::int64_t now = request.scenario.workload.*request.field;
  Sweep found;
  for (int power = -kHalvings; power <= kDoublings && !course.stopped(); ++power) {
    const std::int64_t parts = std::int64_t{1} << std::max(0, -power);
    if (now % parts != 0) continue;
    sim::Scenario s = request.scenario;
    const std::int64_t value = s.workload.*request.field = (now / parts) << std::max(0, power);
    // The report alone, without what only the scenario at hand is asked.
    const Prediction one = make_prediction(s, request.calibration.get(), [] { return true; });
    if (!one.report) continue;
    found.points.push_back({value, static_cast<double>(sim::peak_memory(*one.report).value),
                            sim::tokens_per_second(*one.report)});
    course.show(found);
  }
  return found;
}

struct SweepState {
  explicit SweepState(const PanelTools& tools) : study(tools.studies.add<SweepRequest, Sweep>(sweep)) {}
  SweepStudy& study;
  std::size_t field = 0;
};
using Context = ContextWith<SweepState>;

// One quantity over the field, red where it does not fit; a click on a dot makes its value the scenario's.
void draw_quantity(const Context& context, const SweptField& field, const char* id, ImVec2 size,
                   const ChartAxis& y, double (*quantity)(const SweepPoint&), bool is_memory) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const auto place = [&](const SweepPoint& p) {
    return ChartPoint{static_cast<double>(p.value), quantity(p)};
  };
  const std::vector<SweepPoint>& points = context.state.study.result()->points;
  const double capacity = static_cast<double>(context.scenario.hardware.memory.value);
  std::vector<ChartPoint> line;
  for (const SweepPoint& p : points) line.push_back(place(p));
  Chart chart(look, id, size,
              logarithmic_axis(std::string(field.words).append(", ").append(field.unit), line.front().x,
                               line.back().x),
              y);
  if (!chart) return;
  const std::int64_t now = context.scenario.workload.*field.value;
  chart.line(line, c.predicted, Stroke::dashed, 1.8f);
  for (const SweepPoint& p : points) chart.dot(place(p), p.memory > capacity ? c.bad : c.predicted);
  chart.vertical(static_cast<double>(now), c.text, "now", Stroke::dashed);
  if (is_memory) chart.horizontal(capacity, c.bad, "the device's memory");
  const SweepPoint* hovered = chart.nearest(points, place);
  if (!hovered) return;
  const std::string value = sim::format_count(hovered->value);
  ImGui::SetTooltip("%s %s: %s, %s", std::string(field.words).c_str(), value.c_str(),
                    sim::format(sim::Bytes{std::llround(hovered->memory)}).c_str(),
                    token_rate(hovered->tokens_per_second).c_str());
  if (hovered->value == now || !ImGui::IsMouseClicked(ImGuiMouseButton_Left)) return;
  sim::Scenario next = context.scenario;
  next.workload.*field.value = hovered->value;
  context.edit(std::string(field.words) + " " + sim::format_count(now) + " \u2192 " + value, std::move(next));
}

std::string caption(const PanelContext& context) {
  return context.scenario.model.name + " on " + sim::format_count(context.scenario.strategy.devices()) +
         " x " + context.scenario.hardware.name;
}

void draw(const Context& context) {
  if (draw_missing_prediction(context)) return;
  const Look& look = context.look;
  const auto fields = fields_of(context.scenario.workload.task);
  std::vector<std::string_view> words;
  for (const SweptField& field : fields) words.push_back(field.words);
  if (const auto picked = segmented(look, "field", context.state.field, words)) context.state.field = *picked;
  const SweptField& field = fields[context.state.field];
  context.state.study.follow({context.scenario, context.calibration, field.value});
  if (draw_missing_result(context, context.state.study, "This cannot be swept")) return;
  if (context.state.study.request().field != field.value)
    return draw_empty_state(context, "Predicting", "The first values are on their way.");
  const std::vector<SweepPoint>& points = context.state.study.result()->points;
  if (points.size() < 2)
    return draw_empty_state(context, "Nothing to compare", "No half and no double of this value is legal.");
  double memory = 0, least = points.front().tokens_per_second, most = least;
  for (const SweepPoint& p : points) {
    memory = std::max(memory, p.memory);
    least = std::min(least, p.tokens_per_second);
    most = std::max(most, p.tokens_per_second);
  }
  const double capacity = static_cast<double>(context.scenario.hardware.memory.value);
  const ScaleUnit unit = byte_unit(capacity);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float gap = look.px(16);
  const bool wide = room.x > 1.4f * room.y;
  const ImVec2 size = wide ? ImVec2(std::floor((room.x - gap) / 2), room.y)
                           : ImVec2(room.x, std::floor((room.y - ImGui::GetStyle().ItemSpacing.y) / 2));
  draw_quantity(
      context, field, "##memory", size,
      linear_axis(std::string("memory of a device, ") + unit.name, std::min(memory, 2 * capacity), unit),
      [](const SweepPoint& p) { return p.memory; }, true);
  if (wide) ImGui::SameLine(0, gap);
  draw_quantity(
      context, field, "##rate", size, logarithmic_axis("tokens/s of all devices", least, most),
      [](const SweepPoint& p) { return p.tokens_per_second; }, false);
}

std::vector<Figure> figures(const Context& context) {
  const SweepStudy& study = context.state.study;
  if (!study.result() || study.result()->points.size() < 2) return {};
  const Palette& c = context.look.color();
  const auto fields = fields_of(study.request().scenario.workload.task);
  const auto* field = std::find_if(fields.data(), fields.data() + fields.size(),
                                   [&](const SweptField& f) { return f.value == study.request().field; });
  if (field == fields.data() + fields.size()) return {};
  const std::string over = std::string(field->words).append(", ").append(field->unit);
  const double now = static_cast<double>(study.request().scenario.workload.*field->value);
  const auto plot = [&](const char* what, Measure measure, double SweepPoint::*quantity, bool logarithmic) {
    FigureCurve curve{"predicted", c.predicted, Mark::dashed, {}};
    for (const SweepPoint& p : study.result()->points)
      curve.points.push_back({static_cast<double>(p.value), p.*quantity});
    return FigurePlot{
        {over, Measure::count, true}, {what, measure, logarithmic}, {curve}, {{"now", now, c.text, true}}};
  };
  FigurePlot memory = plot("memory of a device", Measure::bytes, &SweepPoint::memory, false);
  memory.limits.push_back(
      {"the device's memory", static_cast<double>(context.scenario.hardware.memory.value), c.bad});
  return {
      {"Memory against " + std::string(field->words), std::move(memory)},
      {"Throughput against " + std::string(field->words),
       plot("of all devices", Measure::tokens_per_second, &SweepPoint::tokens_per_second, true)}};
}

}  // namespace

extern const PanelEntry sweep_panel = {"sweep", "Sweep", "what one length or batch does to memory and speed",
                                       Dock::upper_left, panel_of<SweepState, caption, draw, figures>};

}  // namespace app::gui
