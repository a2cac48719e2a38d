// Where a number comes from: its value, how far to trust it, the formula, and the formula with the numbers
// put in.
#include "app/gui/panels/explain.h"

#include <algorithm>
#include <cmath>

#include "app/counted.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"

namespace app::gui {
namespace {

struct Line {
  std::string name, value;
};

struct Explanation {
  std::string title, value = {};
  std::string provenance = {}, band = {};
  std::string formula = {};
  std::string line = {};  // the formula with the numbers put in: both sides of it come to the same
  std::vector<Line> numbers = {};
  std::vector<Line> changes = {};  // what would change it, and to what
  std::string changes_title = "What would change it";
  std::string source = {};
  std::string note = {};  // what a reader would ask at once
};

std::string range(sim::Seconds low, sim::Seconds high) {
  return high > low ? sim::format(low) + " to " + sim::format(high) : "";
}

// ", all 8 devices": a figure of all devices and one of a single device are never taken for each other.
std::string of_devices(std::int64_t devices) {
  return devices == 1 ? ", one device" : ", all " + sim::format_count(devices) + " devices";
}

// "336 ms + 390 ms = 726 ms".
std::string sum_of(const std::vector<Line>& parts, const std::string& whole) {
  std::string sum;
  for (const Line& part : parts) sum.append(sum.empty() ? "" : " + ").append(part.value);
  return sum.empty() ? "" : sum + " = " + whole;
}

// The least certain provenance that a noticeable share of the time rests on.
std::string provenance_of(const sim::Report& report) {
  double whole = 0, datasheet = 0, interpolated = 0;
  for (const sim::Row& row : report.rows) {
    whole += row.duration.value;
    if (row.provenance == sim::Provenance::datasheet) datasheet += row.duration.value;
    if (row.provenance == sim::Provenance::interpolated) interpolated += row.duration.value;
  }
  constexpr double kNoticeable = 0.05;
  if (datasheet > kNoticeable * whole) return std::string(sim::name(sim::Provenance::datasheet));
  if (interpolated > kNoticeable * whole) return std::string(sim::name(sim::Provenance::interpolated));
  return std::string(sim::name(sim::Provenance::calibrated));
}

template <class Value>
std::vector<Line> changes_by(const PanelContext& context, Value value) {
  std::vector<Line> lines;
  for (const Alternative& other : context.prediction.alternatives)
    lines.push_back({other.label, value(other.report)});
  return lines;
}

Explanation explain_step(const PanelContext& context, const sim::Report& report) {
  const bool train = report.source.scenario.workload.task == sim::Task::train;
  Explanation e{.title = train ? "Step" : "Generation", .value = sim::format(sim::step_time(report))};
  e.provenance = provenance_of(report);
  e.band = range(report.step_low, report.step_high);
  e.formula =
      "mean over stages of the sum over operations of\ncount x (launch + max(\n  FLOPs / reached FLOP/s,\n  "
      "bytes / "
      "reached B/s)),\nwith what they wait for";
  const sim::StepParts parts = sim::step_parts(report);
  for (const sim::PartShare& share : sim::part_shares(report))
    // What is left of subtractions is no time.
    if (parts[share.part].value > 1e-12)
      e.numbers.push_back({std::string(sim::name(share.part)), sim::format(parts[share.part])});
  e.line = sum_of(e.numbers, e.value);
  e.numbers.push_back({"operations", sim::format_count(static_cast<std::int64_t>(report.rows.size()))});
  e.changes =
      changes_by(context, [](const sim::Report& other) { return sim::format(sim::step_time(other)); });
  e.source = "Williams et al. 2009, Roofline";
  return e;
}

Explanation explain_rate(const PanelContext& context, const sim::Report& report) {
  const sim::Workload& w = report.source.scenario.workload;
  const double rate = sim::tokens_per_second(report);
  Explanation e{.title = "Throughput", .value = token_rate(rate)};
  e.provenance = provenance_of(report);
  if (w.task == sim::Task::train) {
    e.formula = "sequences x tokens / step";
    e.numbers = {{"sequences a step", sim::format_count(w.global_batch_size)},
                 {"tokens a sequence", sim::format_count(w.seq_len)},
                 {"step", sim::format(sim::step_time(report))}};
    e.line = sim::format_count(w.global_batch_size) + " x " + sim::format_count(w.seq_len) + " / " +
             sim::format(sim::step_time(report)) + " = " + e.value;
  } else {
    e.formula = "sequences x new tokens / generation";
    e.numbers = {{"sequences", sim::format_count(w.batch_size)},
                 {"new tokens", sim::format_count(w.max_new_tokens)},
                 {"generation", sim::format(sim::step_time(report))}};
    const auto tokens = report.tokens.empty() ? w.max_new_tokens : std::ssize(report.tokens);
    e.line = sim::format_count(w.batch_size) + " x " + sim::format_count(tokens) + " / " +
             sim::format(sim::step_time(report)) + " = " + e.value;
  }
  e.changes =
      changes_by(context, [](const sim::Report& other) { return token_rate(sim::tokens_per_second(other)); });
  return e;
}

Explanation explain_utilization(const PanelContext& context, const sim::Report& report) {
  const sim::Scenario& s = report.source.scenario;
  Explanation e;
  e.provenance = provenance_of(report);
  if (s.workload.task == sim::Task::train) {
    const sim::FlopsConvention convention = context.view.convention;
    e.title = "MFU, " + std::string(sim::name(convention));
    e.value = sim::format_percent(sim::mfu(report, convention));
    e.formula = "FLOPs a token x tokens/s\n/ (devices x peak of one)";
    e.numbers = {
        {"FLOPs a token", sim::format(sim::flops_per_token(s.model, s.workload.seq_len, convention))},
        {"tokens/s", token_rate_digits(sim::tokens_per_second(report))},
        {"devices", sim::format_count(s.strategy.devices())},
        {"dense peak of one", sim::format(s.hardware.peak_for(s.workload.dtype))}};
    // With adapters less is learned than of the whole model: what the rate and the share come to is what
    // counts.
    const double devices = s.strategy.devices();
    const double peak = s.hardware.peak_for(s.workload.dtype).value;
    const double rate = sim::tokens_per_second(report);
    const sim::Flops counted{rate > 0 ? sim::mfu(report, convention) * peak * devices / rate : 0};
    e.numbers[0].value = sim::format(counted);
    e.line = sim::format(counted) + " x " + token_rate_digits(rate) + " / (" +
             sim::format_count(s.strategy.devices()) + " x " +
             sim::format(s.hardware.peak_for(s.workload.dtype)) + ") = " + e.value;
    e.changes_title = "By other conventions";
    for (int c = 0; c < sim::kFlopsConventions; ++c) {
      const auto other = static_cast<sim::FlopsConvention>(c);
      if (other != convention)
        e.changes.push_back({std::string(sim::name(other)), sim::format_percent(sim::mfu(report, other))});
    }
    e.changes.push_back({"HFU, executed", sim::format_percent(sim::hfu(report))});
    if (sim::mfu(report, convention) > sim::hfu(report))
      e.note = std::string("MFU passes HFU: this convention counts ") +
               (convention == sim::FlopsConvention::all_parameters
                    ? "embedding tables, which nothing multiplies, and "
                    : "") +
               "pairs of tokens that causal attention masks; executed FLOPs do not.";
    e.source = "Chowdhery et al. 2022 (PaLM), appendix B";
  } else {
    e.title = "MBU, decode";
    e.value = sim::format_percent(sim::mbu(report));
    e.formula = "bytes that a device reads and writes\nfor a token / (time a token x bandwidth)";
    if (const auto token = sim::tpot(report)) {
      const sim::Bytes read{
          std::llround(sim::mbu(report) * token->value * s.hardware.memory_bandwidth.value)};
      e.numbers.push_back({"bytes for a token", sim::format(read)});
      e.numbers.push_back({"time a token", sim::format(*token)});
      e.line = sim::format(read) + " / (" + sim::format(*token) + " x " +
               sim::format(s.hardware.memory_bandwidth) + ") = " + e.value;
    }
    e.numbers.push_back({"bandwidth", sim::format(s.hardware.memory_bandwidth)});
    e.changes =
        changes_by(context, [](const sim::Report& other) { return sim::format_percent(sim::mbu(other)); });
    e.source = "Databricks 2023, LLM inference performance engineering";
  }
  return e;
}

Explanation explain_parameters(const sim::Report& report) {
  const sim::Scenario& s = report.source.scenario;
  const sim::Model& m = s.model;
  const sim::ParameterCount n = sim::count_parameters(m);
  Explanation e{.title = "Parameters", .value = sim::format_count(n.total)};
  e.provenance = "exact";
  e.formula = "embedding + layers x (attention\n+ MLP + norms) + norm + head";
  e.numbers = {{"embedding", sim::format_count(n.embedding)},
               {"layers", sim::format_count(m.num_hidden_layers)},
               {"attention, a layer", sim::format_count(n.attention_per_layer)},
               {"MLP, a layer", sim::format_count(n.mlp_per_layer)},
               {"norms, a layer", sim::format_count(n.norms_per_layer)},
               {"final norm", sim::format_count(n.final_norm)},
               {n.head > 0 ? "head" : "head, tied", sim::format_count(n.head)}};
  const std::int64_t by_layers =
      n.embedding + m.num_hidden_layers * (n.attention_per_layer + n.mlp_per_layer + n.norms_per_layer) +
      n.final_norm + n.head;
  // Layers of several kinds have no one size.
  if (by_layers == n.total)
    e.line = sim::format_count(n.embedding) + " + " + sim::format_count(m.num_hidden_layers) + " x (" +
             sim::format_count(n.attention_per_layer) + " + " + sim::format_count(n.mlp_per_layer) + " + " +
             sim::format_count(n.norms_per_layer) + ") + " + sim::format_count(n.final_norm) + " + " +
             sim::format_count(n.head) + " = " + sim::format_count(n.total);
  const std::string what = s.workload.task == sim::Task::train ? "FLOPs a step" : "FLOPs in all";
  const sim::Flops flops = sim::executed_flops(report);
  const int devices = s.strategy.devices();
  e.changes = {{what + of_devices(devices), sim::format(flops)}};
  if (devices > 1)
    e.changes.push_back({what + of_devices(1), sim::format(sim::Flops{flops.value / devices})});
  e.changes_title = "What multiplying with them takes";
  e.source = m.source;
  return e;
}

Explanation explain_memory(const PanelContext& context, const sim::Report& report) {
  Explanation e{.title = "Memory at the peak", .value = sim::format(sim::peak_memory(report))};
  e.provenance = "planned";
  e.formula = "what is live at the fullest moment,\npacked into one arena";
  for (const sim::MemoryLine& line : sim::peak_ledger(report))
    if (line.bytes.value > 0) {
      const int category = memory_category(line.category);
      e.numbers.push_back({category < 0 ? line.category : std::string(memory_category_title(category)),
                           sim::format(line.bytes)});
    }
  e.line = sum_of(e.numbers, e.value);
  e.changes =
      changes_by(context, [](const sim::Report& other) { return sim::format(sim::peak_memory(other)); });
  return e;
}

Explanation explain_category(const PanelContext& context, const sim::Report& report) {
  const int category = context.view.selection.category;
  const auto bytes_in = [category](const sim::Report& of) {
    sim::Bytes sum;
    for (const sim::MemoryLine& line : sim::peak_ledger(of))
      if (memory_category(line.category) == category) sum += line.bytes;
    return sum;
  };
  std::string title(memory_category_title(category));
  title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
  Explanation e{.title = title, .value = sim::format(bytes_in(report))};
  e.provenance = "planned";
  e.formula = category == kPackingCategory    ? "reserved beyond the sum of what is live"
              : category == kCopiesCategory   ? "copies of a whole stage's tensors that the software keeps"
              : category == kPlatformCategory ? "what the process holds outside the arena"
                                              : "buffers of this kind at the peak";
  constexpr std::size_t kMost = 10;
  for (const LiveLine& line : context.prediction.live_at_peak)
    if (static_cast<int>(line.buffer_class) == category && e.numbers.size() < kMost)
      e.numbers.push_back({line.name + (line.instances > 1 ? " x" + sim::format_count(line.instances) : ""),
                           sim::format(line.bytes)});
  e.changes = changes_by(context, [&](const sim::Report& other) { return sim::format(bytes_in(other)); });
  return e;
}

Explanation explain_operation(const PanelContext& context, const sim::Report& report) {
  for (const sim::Row& row : report.rows) {
    if (row.rank != 0 || std::string(sim::name(row.phase)) + " " + row.id != context.view.selection.operation)
      continue;
    Explanation e{.title = context.view.selection.operation, .value = sim::format(row.duration)};
    e.provenance = std::string(sim::name(row.provenance));
    e.band = range(row.low, row.high);
    e.formula = "launch + max(FLOPs / FLOP/s,\n             bytes / B/s)";
    const std::string of_one = report.source.scenario.strategy.devices() > 1 ? of_devices(1) : "";
    e.numbers = {{"kernel", std::string(sim::name(row.kind))},
                 {"run", counted(row.count, "time")},
                 {"FLOPs" + of_one, sim::format(row.flops)},
                 {"memory traffic" + of_one, sim::format(row.memory)}};
    if (row.memory.value > 0)
      e.numbers.push_back({"intensity", significant(row.flops / row.memory, 4) + " FLOP/B"});
    if (row.duration.value > 0) {
      if (row.flops.value > 0)
        e.line = sim::format(row.flops) + " / " + sim::format(row.flops / row.duration) + " = " + e.value;
      else if (row.memory.value > 0)
        e.line = sim::format(row.memory) + " / " + sim::format(row.memory / row.duration) + " = " + e.value;
      e.numbers.push_back({"reaches", sim::format(row.flops / row.duration)});
      e.numbers.push_back({"and", sim::format(row.memory / row.duration)});
    }
    e.numbers.push_back({"bound by", std::string(sim::name(row.bound))});
    return e;
  }
  return explain_step(context, report);
}

Explanation explanation_of(const PanelContext& context, const sim::Report& report, Quantity quantity) {
  switch (quantity) {
    case Quantity::step_time:
      return explain_step(context, report);
    case Quantity::tokens_per_second:
      return explain_rate(context, report);
    case Quantity::utilization:
      return explain_utilization(context, report);
    case Quantity::parameters:
      return explain_parameters(report);
    case Quantity::memory:
      return explain_memory(context, report);
    case Quantity::memory_category:
      return explain_category(context, report);
    case Quantity::operation:
      return explain_operation(context, report);
  }
  return {};
}

Explanation explanation_of(const PanelContext& context, const sim::Report& report) {
  return explanation_of(context, report, context.view.selection.quantity);
}

void draw_lines(const Look& look, const std::vector<Line>& lines, ImU32 value_color) {
  const float width = ImGui::GetContentRegionAvail().x;
  for (const Line& line : lines) {
    const float value = text_size_of(look, TextRole::number, line.value).x;
    text_fitted(look, TextRole::caption, look.color().dim, line.name,
                std::max(0.0f, width - value - look.px(10)));
    ImGui::SameLine();
    text_right(look, TextRole::number, value_color, line.value);
  }
}

std::string caption(const PanelContext& context) {
  return context.prediction.report ? "click any number" : "";
}

// The formula, the same with the numbers put in, and the numbers.
void draw_formula(const Look& look, const Explanation& e) {
  const Palette& c = look.color();
  text_wrapped(look, TextRole::number, c.text, e.formula);
  if (!e.line.empty()) text_wrapped(look, TextRole::number, c.predicted, e.line);
  if (!e.note.empty()) text_wrapped(look, TextRole::caption, c.dim, e.note);
  ImGui::Dummy({0, look.px(2)});
  draw_lines(look, e.numbers, c.predicted);
}

void draw_value(const PanelContext& context, const Explanation& e) {
  const Look& look = context.look;
  const Palette& c = look.color();
  text_wrapped(look, TextRole::body, c.dim, e.title);
  text_wrapped(look, TextRole::heading, c.text, e.value);
  if (!e.provenance.empty()) {
    badge(look, c.predicted, e.provenance);
    if (!e.band.empty()) {
      ImGui::SameLine();
      text_fitted(look, TextRole::caption, c.mute, e.band, ImGui::GetContentRegionAvail().x);
    }
  }
  ImGui::Dummy({0, look.px(2)});
  draw_formula(look, e);
  // On to the rows and constants that the numbers rest on.
  const bool operation = context.view.selection.quantity == Quantity::operation;
  if (ImGui::Button(operation ? "Where it was measured" : "Formulas and constants"))
    context.invoke(operation ? "panel.calibrate" : "panel.methodology");
}

void draw_changes(const Look& look, const Explanation& e) {
  const Palette& c = look.color();
  if (!e.changes.empty()) {
    text(look, TextRole::title, c.text, e.changes_title);
    draw_lines(look, e.changes, c.dim);
  }
  if (!e.source.empty()) {
    ImGui::Dummy({0, look.px(6)});
    text_wrapped(look, TextRole::caption, c.mute, "Source: " + e.source);
  }
}

// A number that is not the selected one; a click selects it.
void draw_other(const PanelContext& context, Quantity quantity) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const Explanation e = explanation_of(context, *context.prediction.report, quantity);
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x,
              line = text_size_of(look, TextRole::title, "x").y + look.px(6);
  if (pressable(e.title.c_str(), {width, line})) context.view.selection.quantity = quantity;
  const bool hovered = ImGui::IsItemHovered();
  ImDrawList* const list = ImGui::GetWindowDrawList();
  if (hovered) list->AddRectFilled(begin, {begin.x + width, begin.y + line}, c.raised, look.px(4));
  const float middle = begin.y + line / 2;
  draw_text(list, look, TextRole::body, {begin.x, middle}, c.dim, e.title, {0, 0.5f});
  draw_text(list, look, TextRole::title, {begin.x + width, middle}, c.text, e.value, {1, 0.5f});
  draw_formula(look, e);
  ImGui::Dummy({0, look.px(16)});
}

void draw(const PanelContext& context) {
  if (draw_missing_prediction(context)) return;
  const Look& look = context.look;
  const Quantity selected = context.view.selection.quantity;
  const Explanation e = explanation_of(context, *context.prediction.report);
  context.view.explained_line = e.line;
  // A name and its number must not drift apart: a wide panel holds columns, none wider than this. What the
  // selected number leaves of them has the others.
  constexpr float kTwoColumns = 720, kLeastColumn = 400, kWidestColumn = 640, kGap = 48;
  const float room = ImGui::GetContentRegionAvail().x, gap = look.px(kGap);
  const int columns = room < look.px(kTwoColumns)
                          ? 1
                          : std::max(2, static_cast<int>((room + gap) / (look.px(kLeastColumn) + gap)));
  const float width =
      std::min(std::floor((room - gap * static_cast<float>(columns - 1)) / static_cast<float>(columns)),
               look.px(kWidestColumn));
  ImGui::BeginChild("value", {width, 0},
                    ImGuiChildFlags_NavFlattened | (columns > 1 ? 0 : ImGuiChildFlags_AutoResizeY));
  draw_value(context, e);
  ImGui::EndChild();
  if (columns > 1)
    ImGui::SameLine(0, gap);
  else
    ImGui::Dummy({0, look.px(6)});
  ImGui::BeginChild("changes", {width, 0});
  draw_changes(look, e);
  ImGui::EndChild();
  std::vector<Quantity> others = {Quantity::step_time, Quantity::tokens_per_second, Quantity::utilization,
                                  Quantity::memory, Quantity::parameters};
  std::erase(others, selected);
  const std::size_t free_columns = static_cast<std::size_t>(columns) - std::min(columns, 2);
  for (std::size_t column = 0, next = 0; column < free_columns; ++column) {
    ImGui::SameLine(0, gap);
    ImGui::PushID(static_cast<int>(column));
    if (ImGui::BeginChild("others", {width, 0}, ImGuiChildFlags_NavFlattened))
      for (const std::size_t end = others.size() * (column + 1) / free_columns; next < end; ++next)
        draw_other(context, others[next]);
    ImGui::EndChild();
    ImGui::PopID();
  }
}

std::vector<Figure> figures(const PanelContext& context) {
  if (!context.prediction.report) return {};
  const Explanation e = explanation_of(context, *context.prediction.report);
  FigureTable table{{{"what"}, {"value"}}, {{e.title, e.value}}};
  const auto say = [&](const std::string& what, const std::string& value) {
    if (!value.empty()) table.rows.push_back({what, value});
  };
  say("known", e.provenance);
  say("90 % of cases lie in", e.band);
  say("formula", e.formula);
  say("with its numbers", e.line);
  for (const Line& line : e.numbers) say(line.name, line.value);
  say("note", e.note);
  say("source", e.source);
  std::vector<Figure> all = {{"Where the number comes from", std::move(table)}};
  if (!e.changes.empty()) {
    FigureTable changes{{{"change"}, {"value then"}}, {}};
    for (const Line& line : e.changes) changes.rows.push_back({line.name, line.value});
    all.push_back({e.changes_title, std::move(changes)});
  }
  return all;
}

}  // namespace

std::string explained(const PanelContext& context, Quantity quantity) {
  if (!context.prediction.report) return "";
  const Explanation e = explanation_of(context, *context.prediction.report, quantity);
  return e.title + " = " + e.formula + (e.line.empty() ? "" : "\n" + e.line);
}

extern const PanelEntry explain_panel = {"explain", "Explain", "where a number comes from", Dock::right,
                                         panel_of<NoState, caption, draw, figures>};

}  // namespace app::gui
