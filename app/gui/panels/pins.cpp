// What is configured beside what was pinned: every figure with its difference from the baseline, what each
// spends its time on, and the runs that can be pinned.
#include "app/gui/pins.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "app/gui/panels/panels.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/figure_bars.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"

namespace app::gui {
namespace {

struct Metric {
  std::string name;
  Measure measure;
  bool more_is_better;
  std::optional<double> (*value)(const sim::Report&, sim::FlopsConvention);
};

std::optional<double> if_known(double value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

std::vector<Metric> metrics_of(sim::Task task) {
  using R = const sim::Report&;
  using C = sim::FlopsConvention;
  std::vector<Metric> metrics;
  const bool train = task == sim::Task::train;
  metrics.push_back({train ? "step" : "generation", Measure::seconds, false,
                     [](R r, C) { return if_known(sim::step_time(r).value); }});
  metrics.push_back({"throughput", Measure::tokens_per_second, true,
                     [](R r, C) { return if_known(sim::tokens_per_second(r)); }});
  metrics.push_back({"memory at the peak", Measure::bytes, false,
                     [](R r, C) { return if_known(static_cast<double>(sim::peak_memory(r).value)); }});
  if (train) {
    metrics.push_back({"MFU", Measure::share, true, [](R r, C c) { return if_known(sim::mfu(r, c)); }});
    metrics.push_back({"HFU", Measure::share, true, [](R r, C) { return if_known(sim::hfu(r)); }});
  } else {
    metrics.push_back({"first token", Measure::seconds, false, [](R r, C) {
                         const auto t = sim::ttft(r);
                         return t ? if_known(t->value) : std::nullopt;
                       }});
    metrics.push_back({"time per token", Measure::seconds, false, [](R r, C) {
                         const auto t = sim::tpot(r);
                         return t ? if_known(t->value) : std::nullopt;
                       }});
    metrics.push_back({"MBU, decode", Measure::share, true, [](R r, C) { return if_known(sim::mbu(r)); }});
  }
  metrics.push_back(
      {"FLOPs", Measure::flops, false, [](R r, C) { return if_known(sim::executed_flops(r).value); }});
  metrics.push_back({"devices", Measure::count, false, [](R r, C) {
                       return if_known(static_cast<double>(r.source.scenario.strategy.devices()));
                     }});
  return metrics;
}

// A report of the table: what is configured, then the pins.
struct Column {
  std::string name;
  ImU32 color;
  const sim::Report* report;
  const Pin* pin = nullptr;
};

std::vector<Column> columns_of(const PanelContext& context) {
  const Palette& c = context.look.color();
  std::vector<Column> columns;
  if (context.prediction.report) columns.push_back({"now", c.predicted, context.prediction.report.get()});
  for (const Pin& pin : context.pins.all())
    columns.push_back({pin.name() + (context.pins.is_baseline(pin) ? ", baseline" : ""),
                       pin_color(context.look, pin), pin.report.get(), &pin});
  return columns;
}

FigureBars parts_of(const PanelContext& context, const std::vector<Column>& columns) {
  FigureBars bars{Measure::seconds, {}, {}};
  for (const sim::StepPart part : sim::kAll<sim::StepPart>)
    bars.parts.push_back({std::string(sim::name(part)), context.look.color().parts[part]});
  for (const Column& column : columns) {
    const sim::StepParts parts = sim::step_parts(*column.report);
    FigureBars::Row row{column.name, {}};
    for (const sim::Seconds seconds : parts.seconds) row.values.push_back(seconds.value);
    bars.rows.push_back(std::move(row));
  }
  return bars;
}

sim::Task task_of(const PanelContext& context) {
  return context.prediction.report ? context.prediction.report->source.scenario.workload.task
                                   : context.scenario.workload.task;
}

std::string of_what(const sim::Report& report) {
  const sim::Scenario& s = report.source.scenario;
  std::string words = report.source.kind == sim::ReportKind::predicted ? "" : "measured, ";
  words += s.model.name + " on ";
  if (s.strategy.devices() > 1) words += sim::format_count(s.strategy.devices()) + " x ";
  words += s.hardware.name;
  if (!report.source.date.empty()) words += ", " + report.source.date.substr(0, 16);
  return words;
}

std::string caption(const PanelContext& context) {
  const Pin* baseline = context.pins.baseline();
  return baseline ? "differences from " + baseline->name() + ": " + of_what(*baseline->report) : "";
}

void draw_metrics(const PanelContext& context, const std::vector<Column>& columns) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const Pin* baseline = context.pins.baseline();
  constexpr float kBeside = 160, kBelow = 90;  // points
  const auto metrics = metrics_of(task_of(context));
  float name_width = 0;
  for (const Metric& metric : metrics)
    name_width = std::max(name_width, std::ceil(text_size_of(look, TextRole::body, metric.name).x) + 1);
  const int count = static_cast<int>(columns.size()) + 1;
  // A difference stands before its number where all columns have room for that, else below it.
  const float padding = 2 * ImGui::GetStyle().CellPadding.x * static_cast<float>(count);
  const float each = (ImGui::GetContentRegionAvail().x - name_width - padding) /
                     static_cast<float>(std::max<std::size_t>(1, columns.size()));
  const bool beside = !baseline || each >= look.px(kBeside);
  const float line = text_size_of(look, TextRole::number, "x").y;
  const float below = text_size_of(look, TextRole::caption, "x").y + ImGui::GetStyle().ItemSpacing.y;
  const float row = (beside ? line : line + below) + look.px(8);
  if (!ImGui::BeginTable("metrics", count, ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_ScrollX,
                         {0, row * static_cast<float>(metrics.size()) + 2 * (line + look.px(8))}))
    return;
  ImGui::TableSetupScrollFreeze(1, 1);
  ImGui::TableSetupColumn("metric", ImGuiTableColumnFlags_WidthFixed, name_width);
  for (const Column& column : columns)
    ImGui::TableSetupColumn(column.name.c_str(), ImGuiTableColumnFlags_WidthFixed,
                            std::clamp(each, look.px(kBelow), look.px(kBeside)));
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  ImGui::TableNextColumn();
  for (const Column& column : columns) {
    ImGui::TableNextColumn();
    ImGui::PushID(column.report);
    text_right(look, TextRole::caption, column.color, column.name);
    if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s", of_what(*column.report).c_str());
    ImGui::PopID();
  }
  for (const Metric& metric : metrics) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    text(look, TextRole::body, c.dim, metric.name);
    const auto of = [&](const sim::Report& report) { return metric.value(report, context.view.convention); };
    const auto was = baseline ? of(*baseline->report) : std::nullopt;
    for (const Column& column : columns) {
      ImGui::TableNextColumn();
      const auto value = of(*column.report);
      if (!value) continue;
      std::string words = text_of(*value, metric.measure);
      const std::string difference =
          was && column.pin != baseline ? signed_percent(*value / *was - 1) : std::string();
      if (beside && !difference.empty()) words = difference + "  " + words;
      text_right(look, TextRole::number,
                 column.pin && column.pin->measured() ? c.measured
                 : column.pin                         ? c.text
                                                      : c.predicted,
                 words);
      if (!beside && !difference.empty()) text_right(look, TextRole::caption, c.dim, difference);
    }
  }
  ImGui::EndTable();
}

void draw_pins(const PanelContext& context) {
  const Look& look = context.look;
  for (std::size_t i = 0; i < context.pins.all().size(); ++i) {
    const Pin& pin = context.pins.all()[i];
    ImGui::PushID(static_cast<int>(i));
    if (ImGui::SmallButton("Unpin")) context.requests.pins.push_back({PinRequest::Kind::remove, i});
    ImGui::SameLine();
    ImGui::BeginDisabled(context.pins.is_baseline(pin));
    if (ImGui::SmallButton("Baseline")) context.requests.pins.push_back({PinRequest::Kind::baseline, i});
    ImGui::EndDisabled();
    ImGui::SameLine();
    if (ImGui::SmallButton("Open")) context.requests.pins.push_back({PinRequest::Kind::swap, i});
    ImGui::SetItemTooltip("Configures its scenario; what is configured takes its place");
    ImGui::SameLine();
    text(look, TextRole::body, pin_color(look, pin), pin.name());
    ImGui::SameLine();
    text_fitted(look, TextRole::caption, look.color().dim, of_what(*pin.report),
                ImGui::GetContentRegionAvail().x);
    ImGui::PopID();
  }
}

void draw_runs(const PanelContext& context) {
  const Look& look = context.look;
  const auto& runs = context.runs.history();
  if (runs.empty()) return;
  // The newest; the others on demand.
  constexpr std::size_t kNewest = 3;
  bool& shows_all = *ImGui::GetStateStorage()->GetBoolRef(ImGui::GetID("all runs"));
  const bool has_more = runs.size() > kNewest;
  const std::string heading = "Runs, " + sim::format_count(std::ssize(runs));
  if (has_more && folding_heading(look, heading, !shows_all)) shows_all = !shows_all;
  if (!has_more) form_heading(look, "Runs");
  if (const std::string& failure = context.runs.history_failure(); !failure.empty())
    text_wrapped(look, TextRole::caption, look.color().bad, failure);
  for (std::size_t i = 0; i < (shows_all ? runs.size() : std::min(runs.size(), kNewest)); ++i) {
    ImGui::PushID(static_cast<int>(1000 + i));
    if (ImGui::SmallButton("Pin")) context.requests.pins.push_back({PinRequest::Kind::add, 0, runs[i]});
    ImGui::SameLine();
    text(look, TextRole::number, look.color().measured, sim::format(sim::step_time(*runs[i])));
    ImGui::SameLine();
    text_fitted(look, TextRole::caption, look.color().dim, of_what(*runs[i]),
                ImGui::GetContentRegionAvail().x);
    ImGui::PopID();
  }
}

void draw(const PanelContext& context) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const std::vector<Column> columns = columns_of(context);
  const Pin* baseline = context.pins.baseline();
  // What is clicked several times in turn stands above what the clicks change.
  if (primary_button(look, "Pin this scenario", c.predicted)) context.invoke("pins.add");
  if (context.measured()) {
    ImGui::SameLine();
    if (ImGui::Button("Pin its run"))
      context.requests.pins.push_back({PinRequest::Kind::add, 0, context.run().measured});
  }
  draw_runs(context);
  if (baseline && context.prediction.report) {
    const std::string words = what_made_the_difference(*context.prediction.report, *baseline);
    if (!words.empty()) text_wrapped(look, TextRole::title, c.text, words);
  } else if (!baseline) {
    text_wrapped(look, TextRole::body, c.dim,
                 "Pin what is configured (key P), change something, and every panel shows both. Up to five "
                 "predictions, runs and recordings stand beside each other; the first is the baseline.");
  }
  draw_pins(context);
  if (!columns.empty()) draw_metrics(context, columns);
  if (columns.size() > 1) {
    form_heading(look, "Where the time goes");
    std::vector<ImU32> colors;
    for (const Column& column : columns) colors.push_back(column.color);
    const FigureBars parts = parts_of(context, columns);
    const float width = ImGui::GetContentRegionAvail().x;
    draw_figure_bars(look, parts, {width, look.px(34) * static_cast<float>(columns.size())}, colors);
    draw_figure_legend(look, parts, width);
  }
}

std::vector<Figure> figures(const PanelContext& context) {
  const std::vector<Column> columns = columns_of(context);
  const Pin* baseline = context.pins.baseline();
  if (!baseline) return {};
  FigureTable table{{{"quantity"}}, {}};
  for (const Column& column : columns) {
    table.columns.push_back({column.name});
    if (column.pin != baseline) table.columns.push_back({column.name + " against " + baseline->name()});
  }
  for (const Metric& metric : metrics_of(task_of(context))) {
    std::vector<Cell> row = {metric.name};
    const auto was = metric.value(*baseline->report, context.view.convention);
    for (const Column& column : columns) {
      const auto value = metric.value(*column.report, context.view.convention);
      row.push_back(value ? Cell(text_of(*value, metric.measure)) : Cell());
      if (column.pin != baseline)
        row.push_back(value && was ? Cell(signed_percent(*value / *was - 1)) : Cell());
    }
    table.rows.push_back(std::move(row));
  }
  return {{"Compared", std::move(table)}, {"Where the time goes", parts_of(context, columns)}};
}

}  // namespace

extern const PanelEntry pins_panel = {"pins", "Compare", "what is configured beside what was pinned",
                                      Dock::lower_right, panel_of<NoState, caption, draw, figures>};

}  // namespace app::gui
