// What any number of the scenario does to memory and speed, all else as it is; and, as a curve each, for
// every value of a second field.
#include "app/gui/panels/sweep.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "app/gui/legal.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/scenario_fields.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/legend.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/planner/estimate.h"
#include "sim/report/metrics.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

using Context = ContextWith<SweepState>;
using FieldKind = sim::AnyField::Kind;

struct Metric {
  std::string_view name;
  Measure measure;
  double SweepPoint::*value;
  bool logarithmic;
};
constexpr std::array<Metric, 4> kMetrics = {
    {{"memory", Measure::bytes, &SweepPoint::memory, false},
     {"tokens/s", Measure::tokens_per_second, &SweepPoint::tokens_per_second, true},
     {"time", Measure::seconds, &SweepPoint::step, true},
     {"utilization", Measure::share, &SweepPoint::utilization, false}}};
constexpr std::size_t kMemory = 0;
constexpr unsigned kMostThreads = 16;  // of a sweep

bool is_offered(const sim::AnyField& field, const sim::Scenario& scenario) {
  return !field.label.empty() && (!field.applies || field.applies(scenario));
}

// Those that can be doubled and halved; lengths and batches first.
std::vector<const sim::AnyField*> swept_fields(const sim::Scenario& scenario) {
  std::vector<const sim::AnyField*> fields;
  for (const sim::AnyField& field : sim::all_fields())
    if (is_offered(field, scenario) && field.kind == FieldKind::number && field.number(scenario) >= 1)
      fields.push_back(&field);
  std::stable_partition(fields.begin(), fields.end(),
                        [](const sim::AnyField* field) { return field->part == "workload"; });
  return fields;
}

std::vector<const sim::AnyField*> curve_fields(const sim::Scenario& scenario, std::string_view field) {
  std::vector<const sim::AnyField*> fields;
  for (const sim::AnyField& one : sim::all_fields())
    if (is_offered(one, scenario) && one.path() != field &&
        (one.kind == FieldKind::word || one.kind == FieldKind::toggle ||
         (one.kind == FieldKind::number && one.number(scenario) >= 1)))
      fields.push_back(&one);
  return fields;
}

// The scenario with each value of a field, itself among them.
std::vector<SweepCurve> curves_of(const SweepRequest& request) {
  const sim::AnyField* by = sim::field_at(request.by);
  const sim::Scenario& now = request.scenario;
  std::vector<SweepCurve> curves;
  if (by) {
    const auto add = [&](const auto& change) {
      sim::Scenario other = now;
      change(other);
      const bool known = std::any_of(curves.begin(), curves.end(),
                                     [&](const SweepCurve& c) { return by->same(c.scenario, other); });
      if (known) return;
      const bool is_now = by->same(now, other);
      other = with_batch_following(now, other);
      if (!sim::validate(other).empty()) return;
      std::string label = said(*by, other);
      curves.push_back({std::move(label), is_now, false, std::move(other), {}});
    };
    if (by->kind == FieldKind::number)
      for (const double factor : {0.25, 0.5, 1.0, 2.0, 4.0}) {
        const double value = by->number(now) * factor;
        if (value >= 1 && value == std::floor(value))
          add([&](sim::Scenario& s) { by->set_number(s, value); });
      }
    else if (by->kind == FieldKind::toggle)
      for (const char* value : {"off", "on", "false", "true"})
        add([&](sim::Scenario& s) { by->set(s, value); });
    else
      for (const std::string_view word : by->words)
        add([&](sim::Scenario& s) { by->set(s, std::string(word)); });
  } else {
    curves.push_back({"predicted", true, false, now, {}});
  }
  if (request.baseline && !(request.baseline->source.scenario == now))
    curves.push_back({"baseline", false, true, request.baseline->source.scenario, {}});
  return curves;
}

// Halves and doubles of what the field is now, for a prediction with the quarters between them.
std::vector<double> swept_values(double now, bool with_quarters) {
  constexpr int kHalvings = 6, kDoublings = 6;
  std::vector<double> values;
  for (int power = -kHalvings; power <= kDoublings; ++power)
    for (const double factor : {1.0, 1.25, 1.5, 1.75}) {
      const double value = std::ldexp(now, power) * factor;
      const bool in_range = factor == 1 || (with_quarters && power < kDoublings);
      if (in_range && value >= 1 && value == std::floor(value)) values.push_back(value);
    }
  return values;
}

sim::Scenario with_value(const sim::Scenario& scenario, const sim::AnyField& field, double value) {
  sim::Scenario next = scenario;
  field.set_number(next, value);
  return with_batch_following(scenario, next);
}

// The point as a prediction of the scenario has it; none where that cannot be.
std::optional<SweepPoint> predicted_point(const SweepRequest& request, double value, const sim::Scenario& s) {
  // The baseline's own hardware may be another, whose calibration is not at hand.
  const bool calibrated = request.calibration && s.hardware == request.scenario.hardware;
  // The report alone, without what only the scenario at hand is asked.
  const Prediction one =
      make_prediction(s, calibrated ? request.calibration.get() : nullptr, [] { return true; });
  if (!one.report) return std::nullopt;
  return sweep_point(value, *one.report);
}

// Calls work(part) for each of the parts, on all cores.
template <class Work>
void on_all_cores(std::size_t parts, const Work& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto take = [&] {
    try {
      for (std::size_t i; (i = next++) < parts;) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  const std::size_t most = std::min<std::size_t>(parts, kMostThreads);
  const std::size_t threads = std::min<std::size_t>(std::thread::hardware_concurrency(), most);
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(take);
    take();
  }
  if (failure) std::rethrow_exception(failure);
}

// The curve's points, as far as they are legal.
std::vector<SweepPoint> predicted_points(const SweepRequest& request, const SweepCurve& curve,
                                         const sim::AnyField& field, const SweepStudy::Course& course) {
  const std::vector<double> values = swept_values(field.number(request.scenario), true);
  std::vector<std::optional<SweepPoint>> found(values.size());
  on_all_cores(values.size(), [&](std::size_t i) {
    if (!course.stopped())
      found[i] = predicted_point(request, values[i], with_value(curve.scenario, field, values[i]));
  });
  std::vector<SweepPoint> points;
  for (const std::optional<SweepPoint>& point : found)
    if (point) points.push_back(*point);
  return points;
}

// The same at once, within what estimates are off (sim/planner/estimate.h): of training, where no caching
// allocator's requests are to be replayed. Empty where it has none.
std::vector<SweepPoint> estimated_points(const SweepRequest& request, const SweepCurve& curve,
                                         const sim::AnyField& field, const SweepStudy::Course& course) {
  std::vector<SweepPoint> points;
  const sim::Scenario& of = curve.scenario;
  const bool same_base = field.part == "workload" || field.part == "strategy";
  if (of.workload.task != sim::Task::train || !same_base) return points;
  const bool calibrated = request.calibration && of.hardware == request.scenario.hardware;
  sim::Estimator estimator(of, calibrated ? request.calibration.get() : nullptr);
  for (const double value : swept_values(field.number(request.scenario), true)) {
    if (course.stopped()) break;
    const sim::Scenario s = with_value(of, field, value);
    if (!sim::validate(s).empty()) continue;
    const sim::Estimate estimate = estimator.estimate(s.strategy, s.workload);
    const double tokens =
        static_cast<double>(s.workload.global_batch_size) * static_cast<double>(s.workload.seq_len);
    const double rate = tokens / estimate.step.value;
    const auto memory = static_cast<double>(estimate.memory.value);
    points.push_back({value, memory, rate, estimate.step.value,
                      sim::mfu(s, rate, sim::FlopsConvention::six_n_causal), memory});
  }
  return points;
}

// Estimates of all curves at once, then curve by curve the predictions.
Sweep sweep(const SweepRequest& request, const SweepStudy::Course& course) {
  const sim::AnyField* field = sim::field_at(request.field);
  Sweep found;
  if (!field || !field->number) return found;
  found.curves = curves_of(request);
  on_all_cores(found.curves.size(), [&](std::size_t i) {
    found.curves[i].points = estimated_points(request, found.curves[i], *field, course);
  });
  const auto is_empty = [](const SweepCurve& curve) { return curve.points.empty(); };
  if (std::none_of(found.curves.begin(), found.curves.end(), is_empty)) course.show(found);
  for (SweepCurve& curve : found.curves) {
    curve.points = predicted_points(request, curve, *field, course);
    if (course.stopped()) break;
    Sweep so_far = found;
    std::erase_if(so_far.curves, is_empty);
    course.show(std::move(so_far));
  }
  std::erase_if(found.curves, is_empty);
  return found;
}

std::string axis_words(const sim::AnyField& field) {
  std::string words(field.label);
  if (field.unit == sim::FieldUnit::tokens) words += ", tokens";
  return words;
}

// What is configured in the predicted colour; other curves in those of pins, the baseline in grey.
ImU32 curve_color(const Look& look, const Sweep& sweep, std::size_t curve) {
  const SweepCurve& of = sweep.curves[curve];
  if (of.of_baseline) return look.color().mute;
  if (of.is_now) return look.color().predicted;
  std::size_t others = 0;
  for (std::size_t i = 0; i < curve; ++i) others += !sweep.curves[i].is_now && !sweep.curves[i].of_baseline;
  return look.color().pins[others % kPins];
}

std::pair<double, double> range_of(const Sweep& sweep, double SweepPoint::*value) {
  double least = 1e300, most = 0;
  for (const SweepCurve& curve : sweep.curves)
    for (const SweepPoint& p : curve.points) {
      least = std::min(least, p.*value);
      most = std::max(most, p.*value);
    }
  return {least, most};
}

// What was measured over `field` in the scenario at hand, whatever the field's value; null: nothing was.
const MeasuredSweep* measured_of(const Context& context, const sim::AnyField& field) {
  const MeasuredSweepStudy& study = context.state.measuring;
  if (!study.result() || study.request().field != field.path()) return nullptr;
  const sim::Scenario now = with_value(study.request().scenario, field, field.number(context.scenario));
  return now == context.scenario ? study.result() : nullptr;
}

// A small plot has no free place for the names of its curves.
bool needs_legend(const Look& look, ImVec2 plot) {
  return plot.x < look.px(420) || plot.y < look.px(240);
}

// Whether a device's memory holds it: else its dot is a red ring, which no curve's colour is taken for.
bool fits(const Context& context, const SweepPoint& point) {
  return point.memory <= static_cast<double>(context.scenario.hardware.memory.value);
}

std::vector<LegendEntry> legend_of(const Context& context, ImVec2 plot) {
  const Sweep& all = *context.state.study.result();
  std::vector<LegendEntry> entries;
  if (all.curves.size() > 1 && needs_legend(context.look, plot))
    for (std::size_t i = 0; i < all.curves.size(); ++i)
      entries.push_back({curve_color(context.look, all, i), all.curves[i].label});
  const bool all_fit = std::ranges::all_of(all.curves, [&](const SweepCurve& curve) {
    return std::ranges::all_of(curve.points, [&](const SweepPoint& p) { return fits(context, p); });
  });
  if (!all_fit) entries.push_back({context.look.color().bad, "does not fit the device's memory", true});
  return entries;
}

// One quantity over the field, a red ring where it does not fit; a click on a dot makes its value the
// scenario's.
void draw_quantity(const Context& context, const sim::AnyField& field, const char* id, ImVec2 size,
                   const Metric& metric) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const Sweep& all = *context.state.study.result();
  const double capacity = static_cast<double>(context.scenario.hardware.memory.value);
  const bool is_memory = &metric == &kMetrics[kMemory];
  auto [least, most] = range_of(all, metric.value);
  if (const MeasuredSweep* measured = measured_of(context, field))
    for (const SweepPoint& p : measured->points) {
      least = std::min(least, p.*metric.value);
      most = std::max(most, p.*metric.value);
    }
  const auto [from, to] = range_of(all, &SweepPoint::value);
  const ScaleUnit unit = is_memory ? byte_unit(std::min(most, 2 * capacity)) : scale_of(metric.measure, most);
  std::string title = is_memory ? "memory of a device" : std::string(metric.name);
  if (unit.name[0] && title != unit.name) title.append(", ").append(unit.name);
  Chart chart(look, id, size, logarithmic_axis(axis_words(field), from, to),
              is_memory            ? linear_axis(title, std::min(most, 2 * capacity), unit)
              : metric.logarithmic ? logarithmic_axis(title, least, most, unit)
                                   : linear_axis(title, most, unit));
  if (!chart) return;
  const auto place = [&](const SweepPoint& p) { return ChartPoint{p.value, p.*metric.value}; };
  // Where a doubling has little room its quarters are the line's alone.
  constexpr float kRoomForQuarters = 60;
  const bool all_dots = size.x > look.px(kRoomForQuarters) * static_cast<float>(std::log2(to / from));
  const auto is_doubling = [&, now = field.number(context.scenario)](double value) {
    const double doublings = std::log2(value / now);
    return doublings == std::round(doublings);
  };
  for (std::size_t i = 0; i < all.curves.size(); ++i) {
    const SweepCurve& curve = all.curves[i];
    const ImU32 color = curve_color(look, all, i);
    std::vector<ChartPoint> line;
    for (const SweepPoint& p : curve.points) line.push_back(place(p));
    chart.line(line, color, Stroke::dashed, 1.8f);
    for (const SweepPoint& p : curve.points)
      if (all_dots || is_doubling(p.value)) {
        const bool held = fits(context, p);
        chart.dot(place(p), held ? color : c.bad, held);
      }
    // The last point that is in sight.
    const auto seen = std::find_if(line.rbegin(), line.rend(),
                                   [&](const ChartPoint& p) { return !is_memory || p.y < 2 * capacity; });
    if (all.curves.size() > 1 && !needs_legend(look, size) && seen != line.rend())
      chart.name(*seen, color, curve.label);
  }
  if (const MeasuredSweep* measured = measured_of(context, field)) {
    std::vector<ChartPoint> line;
    for (const SweepPoint& p : measured->points) line.push_back(place(p));
    chart.line(line, c.measured, Stroke::solid, 1.8f);
    for (const ChartPoint& p : line) chart.dot(p, c.measured);
    const bool here = context.scenario.hardware.name == sim::kThisMachine;
    const std::string& device = context.state.measuring.request().place.name;
    if (!line.empty()) chart.name(line.back(), c.measured, here ? "measured" : "measured on " + device);
    // What is the process's own would hide that plan and run are one.
    if (is_memory)
      for (const SweepPoint& p : measured->points) chart.dot({p.value, p.planned}, c.measured, false, 5.5f);
    if (is_memory && !measured->points.empty())
      chart.name({measured->points.front().value, measured->points.front().planned}, c.measured,
                 "measured, without the process");
    if (const SweepPoint* hovered = chart.nearest(measured->points, place))
      ImGui::SetTooltip("measured, %s %s: %s, %s", std::string(field.label).c_str(),
                        sim::format_count(std::llround(hovered->value)).c_str(),
                        sim::format(sim::Bytes{std::llround(hovered->memory)}).c_str(),
                        token_rate(hovered->tokens_per_second).c_str());
  }
  const double now = field.number(context.scenario);
  chart.vertical(now, c.text, "now", Stroke::dashed);
  if (is_memory) chart.horizontal(capacity, c.bad, "the device's memory");
  for (const SweepCurve& curve : all.curves) {
    const SweepPoint* hovered = chart.nearest(curve.points, place);
    if (!hovered) continue;
    sim::Scenario next = with_value(curve.scenario, field, hovered->value);
    const std::string value = sim::format_count(std::llround(hovered->value));
    ImGui::SetTooltip("%s %s: %s, %s%s%s", std::string(field.label).c_str(), value.c_str(),
                      sim::format(sim::Bytes{std::llround(hovered->memory)}).c_str(),
                      token_rate(hovered->tokens_per_second).c_str(), all.curves.size() > 1 ? "\n" : "",
                      all.curves.size() > 1 ? curve.label.c_str() : "");
    if (!(next == context.scenario) && ImGui::IsMouseClicked(ImGuiMouseButton_Left))
      context.edit(differences(context.scenario, next), std::move(next));
    return;
  }
}

// Starts, stops and follows the runs of a measured sweep.
void draw_measuring(const Context& context, const sim::AnyField& field) {
  const Look& look = context.look;
  SweepState& state = context.state;
  MeasuredSweepStudy& study = state.measuring;
  if (state.executable.empty()) return;
  ImGui::SameLine(0, look.px(12));
  if (ImGui::GetContentRegionAvail().x < text_size_of(look, TextRole::body, "Measure here").x + look.px(24))
    ImGui::NewLine();
  if (study.progress().running) {
    if (primary_button(look, "Stop", look.color().bad)) study.cancel();
    ImGui::SameLine();
    ImGui::AlignTextToFramePadding();
    return text_fitted(look, TextRole::caption, look.color().measured,
                       "running " + std::string(field.label) + " " + study.progress().part + ", " +
                           sim::format_count(study.progress().done) + " of " +
                           sim::format_count(study.progress().of),
                       ImGui::GetContentRegionAvail().x);
  }
  ImGui::BeginDisabled(context.runs.active());
  if (primary_button(look, "Measure here", look.color().measured)) {
    MeasuredSweepQuestion question{state.executable,
                                   context.scenario,
                                   field.path(),
                                   {},
                                   context.runs.choices.place,
                                   state.calibrations.of_this_machine()};
    for (const double value : swept_values(field.number(context.scenario), false)) {
      sim::Scenario one = with_value(context.scenario, field, value);
      if (sim::validate(one).empty()) question.values.emplace_back(value, std::move(one));
    }
    study.ask(std::move(question));
  }
  ImGui::EndDisabled();
  ImGui::SetItemTooltip(
      "A run of %d steps for each value, on %s: what is measured is drawn over the prediction",
      static_cast<int>(kSweptSteps), context.runs.choices.place.name.c_str());
  if (const MeasuredSweep* measured = measured_of(context, field); measured && !measured->left_out.empty()) {
    ImGui::SameLine();
    ImGui::AlignTextToFramePadding();
    std::string all;
    for (const std::string& one : measured->left_out) all += (all.empty() ? "" : "\n") + one;
    text_fitted(
        look, TextRole::caption, look.color().mute,
        sim::format_count(std::ssize(measured->left_out)) + " left out, " + measured->left_out.front(),
        ImGui::GetContentRegionAvail().x);
    if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s", all.c_str());
  }
}

std::string caption(const PanelContext& context) {
  return context.scenario.model.name + " on " + sim::format_count(context.scenario.strategy.devices()) +
         " x " + context.scenario.hardware.name;
}

// The chosen field, where it applies; else the first.
const sim::AnyField* field_of(const SweepState& state, const sim::Scenario& scenario) {
  const auto fields = swept_fields(scenario);
  const auto chosen = std::find_if(fields.begin(), fields.end(),
                                   [&](const sim::AnyField* f) { return f->path() == state.field; });
  return chosen != fields.end() ? *chosen : fields.empty() ? nullptr : fields.front();
}

void pick_fields(const Context& context, const sim::AnyField& field) {
  const Look& look = context.look;
  SweepState& state = context.state;
  if (begin_picker(look, "field", field.label, look.px(170))) {
    for (const sim::AnyField* one : swept_fields(context.scenario))
      if (ImGui::Selectable(std::string(one->label).c_str(), one == &field)) state.field = one->path();
    end_picker();
  }
  ImGui::SameLine(0, look.px(6));
  const sim::AnyField* by = sim::field_at(state.by);
  if (begin_picker(look, "by", by ? "for each " + std::string(by->label) : std::string("one curve"),
                   look.px(220))) {
    if (ImGui::Selectable("one curve", !by)) state.by.clear();
    for (const sim::AnyField* one : curve_fields(context.scenario, field.path()))
      if (ImGui::Selectable(("for each " + std::string(one->label)).c_str(), one == by))
        state.by = one->path();
    end_picker();
  }
  ImGui::SameLine(0, look.px(6));
  std::vector<std::string_view> names;
  for (std::size_t i = 1; i < kMetrics.size(); ++i) names.push_back(kMetrics[i].name);
  if (const auto picked = segmented(look, "metric", state.metric - 1, names)) state.metric = *picked + 1;
}

void draw(const Context& context) {
  if (draw_missing_prediction(context)) return;
  const Look& look = context.look;
  const sim::AnyField* field = field_of(context.state, context.scenario);
  if (!field) return draw_empty_state(context, "Nothing to sweep", "No number of this scenario can change.");
  pick_fields(context, *field);
  draw_measuring(context, *field);
  const Pin* baseline = context.pins.baseline();
  context.state.study.follow({context.scenario, context.calibration, field->path(), context.state.by,
                              baseline ? baseline->report : nullptr});
  if (draw_missing_result(context, context.state.study, "This cannot be swept")) return;
  if (context.state.study.request().field != field->path())
    return draw_empty_state(context, "Predicting", "The first values are on their way.");
  const Sweep& all = *context.state.study.result();
  const auto has_two = [](const SweepCurve& curve) { return curve.points.size() > 1; };
  if (std::none_of(all.curves.begin(), all.curves.end(), has_two))
    return draw_empty_state(context, "Nothing to compare", "No half and no double of this value is legal.");
  ImVec2 room = ImGui::GetContentRegionAvail();
  const float gap = look.px(16);
  const bool wide = room.x > 1.4f * room.y;
  const auto half_of = [&](ImVec2 whole) {
    return wide ? ImVec2(std::floor((whole.x - gap) / 2), whole.y)
                : ImVec2(whole.x, std::floor((whole.y - ImGui::GetStyle().ItemSpacing.y) / 2));
  };
  if (const auto entries = legend_of(context, half_of(room)); !entries.empty()) {
    draw_legend(look, entries, room.x);
    room = ImGui::GetContentRegionAvail();
  }
  const ImVec2 size = half_of(room);
  draw_quantity(context, *field, "##memory", size, kMetrics[kMemory]);
  if (wide) ImGui::SameLine(0, gap);
  draw_quantity(context, *field, "##rate", size, kMetrics[context.state.metric]);
}

std::vector<Figure> figures(const Context& context) {
  const SweepStudy& study = context.state.study;
  if (!study.result() || study.result()->curves.empty()) return {};
  const Palette& c = context.look.color();
  const sim::AnyField* field = sim::field_at(study.request().field);
  const Sweep& all = *study.result();
  std::vector<Figure> drawn;
  for (const std::size_t chosen : {kMemory, context.state.metric}) {
    const Metric& metric = kMetrics[chosen];
    FigurePlot plot{{axis_words(*field), Measure::count, true},
                    {std::string(metric.name), metric.measure, metric.logarithmic},
                    {}};
    if (metric.measure == Measure::tokens_per_second) plot.y.label = "of all devices";
    for (std::size_t i = 0; i < all.curves.size(); ++i) {
      FigureCurve curve{all.curves[i].label, curve_color(context.look, all, i), Mark::dashed, {}};
      for (const SweepPoint& p : all.curves[i].points) curve.points.push_back({p.value, p.*metric.value});
      plot.curves.push_back(std::move(curve));
    }
    if (const MeasuredSweep* measured = measured_of(context, *field)) {
      FigureCurve curve{"measured", c.measured, Mark::line, {}};
      for (const SweepPoint& p : measured->points) curve.points.push_back({p.value, p.*metric.value});
      if (!curve.points.empty()) plot.curves.push_back(std::move(curve));
    }
    plot.limits.push_back({"now", field->number(study.request().scenario), c.text, true});
    if (chosen == kMemory)
      plot.limits.push_back(
          {"the device's memory", static_cast<double>(context.scenario.hardware.memory.value), c.bad});
    std::string title(metric.name);
    title.append(" of ").append(study.request().scenario.model.name).append(" against ").append(field->label);
    title.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(title.front())));
    drawn.push_back({std::move(title), std::move(plot)});
  }
  return drawn;
}

}  // namespace

SweepState::SweepState(const PanelTools& tools)
    : study(tools.studies.add<SweepRequest, Sweep>(sweep)),
      measuring(tools.studies.add<MeasuredSweepQuestion, MeasuredSweep>(measure_sweep)),
      calibrations(tools.calibrations) {}

extern const PanelEntry sweep_panel = {"sweep", "Sweep", "what one field, or two, do to memory and speed",
                                       Dock::upper_left, panel_of<SweepState, caption, draw, figures>};

}  // namespace app::gui
