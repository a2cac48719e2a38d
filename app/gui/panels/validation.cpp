// How far predictions lie from what others measured: every row of every table, and each source's errors.
#include "app/gui/panels/validation.h"

#include <imgui.h>
#include <misc/cpp/imgui_stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "app/cli/executable.h"
#include "app/counted.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/lessons_guesses.h"
#include "app/gui/panels/panels.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/plot.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/quantile.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr const char* kAll = "all";
using Context = ContextWith<ValidationState>;

// Sources in colours that neighbours in a table do not share: hues a golden angle apart.
ImU32 source_color(const Look& look, std::size_t source) {
  constexpr float kGoldenAngle = 0.618034f;
  const float hue = 0.58f + kGoldenAngle * static_cast<float>(source);
  ImVec4 color = {0, 0, 0, 1};
  const bool dark = look.color().is_dark;
  ImGui::ColorConvertHSVtoRGB(hue - std::floor(hue), dark ? 0.5f : 0.75f, dark ? 0.92f : 0.66f, color.x,
                              color.y, color.z);
  return ImGui::ColorConvertFloat4ToU32(color);
}

// "step_time_s" -> "step time, s": columns bear their unit as a suffix.
std::string column_title(std::string_view column) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> units = {{
      {"_us", ", \u00b5s"},
      {"_ms", ", ms"},
      {"_s", ", s"},
      {"_gbps", ", GB/s"},
      {"_gb", ", GB"},
      {"_gib", ", GiB"},
  }};
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> whole = {{
      {"tokens_per_s_per_gpu", "tokens/s a GPU"},
      {"tflops_per_gpu", "TFLOP/s a GPU"},
      {"tflops", "TFLOP/s"},
      {"mfu", "MFU, %"},
      {"hfu", "HFU, %"},
  }};
  for (const auto& [name, title] : whole)
    if (column == name) return std::string(title);
  std::string words(column);
  for (const auto& [suffix, unit] : units)
    if (words.ends_with(suffix) && !words.ends_with("_per_s")) {
      words.resize(words.size() - suffix.size());
      words += unit;
      break;
    }
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

// What is shown of the tables.
struct Shown {
  const ValidatedTable* table = nullptr;
  const ValidatedColumn* column = nullptr;
  std::vector<const ValidationPoint*> points;  // of the source and GPU that are asked for
};

std::size_t index_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

Shown choose(const ValidationState& scope) {
  Shown shown;
  if (!scope.study.result()) return shown;
  for (const auto& table : scope.study.result()->tables)
    if (!shown.table || table->name == scope.table) shown.table = table.get();
  if (!shown.table || shown.table->columns.empty()) return shown;
  shown.column = &shown.table->columns.front();
  for (const ValidatedColumn& column : shown.table->columns)
    if (column.name == scope.column) shown.column = &column;
  const std::size_t source = index_of(shown.table->sources, scope.source);
  const std::size_t gpu = index_of(shown.table->gpus, scope.gpu);
  for (const ValidationPoint& point : shown.column->points)
    if ((scope.source.empty() || point.source == source) && (scope.gpu.empty() || point.gpu == gpu))
      shown.points.push_back(&point);
  return shown;
}

constexpr const char* kOwnSeries = "configurations";

// Measures here, or stops that.
void draw_measure_button(const Context& context, float width) {
  ValidationState& scope = context.state;
  const bool running = scope.own.progress().running;
  ImGui::BeginDisabled(!running && !scope.can_measure());
  if (ImGui::Button(running ? "Stop" : "Measure here", {width, 0}))
    context.invoke(running ? "validation.stop" : "validation.measure");
  ImGui::EndDisabled();
  if (!ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) return;
  static const std::string runs =
      sim::format_count(static_cast<std::int64_t>(sim::load_series_preset(kOwnSeries).points()));
  ImGui::BeginTooltip();
  text(context.look, TextRole::caption, context.look.color().text,
       running ? "What is measured so far stays in the table."
               : "Some minutes of " + runs +
                     " short trainings and generations on this machine,\nthat its calibration does not hold, "
                     "each beside its prediction.");
  ImGui::EndTooltip();
}

void draw_open_field(const Context& context, float width) {
  const Look& look = context.look;
  ValidationState& scope = context.state;
  const float button = look.px(112);
  if (width >= button + look.px(180)) {
    draw_measure_button(context, button);
    ImGui::SameLine(0, look.px(6));
    width -= button + look.px(6);
  }
  ImGui::SetNextItemWidth(width - look.px(64));
  const bool entered = ImGui::InputTextWithHint("##path", "a table of measurements, FILE.csv", &scope.path,
                                                ImGuiInputTextFlags_EnterReturnsTrue);
  ImGui::SameLine(0, look.px(4));
  if ((ImGui::Button("Open", {look.px(60), 0}) || entered) && !scope.path.empty())
    context.invoke("validation.open");
}

// Picks one of the names, or all of them.
void filter_picker(const Context& context, const char* id, const char* what, std::string& chosen,
                   const std::vector<std::string>& names, float width) {
  if (names.size() < 2) return;
  const std::string shown = chosen.empty() ? std::string(kAll) + " " + what : chosen;
  ImGui::SameLine(0, context.look.px(6));
  if (!begin_picker(context.look, id, shown, width)) return;
  if (ImGui::Selectable((std::string(kAll) + " " + what).c_str(), chosen.empty())) chosen.clear();
  for (const std::string& name : names)
    if (ImGui::Selectable(name.empty() ? "(unnamed)" : name.c_str(), name == chosen)) chosen = name;
  end_picker();
}

void draw_controls(const Context& context, const Shown& shown) {
  const Look& look = context.look;
  const ValidationView& view = *context.state.study.result();
  ValidationState& scope = context.state;
  const float room = ImGui::GetContentRegionAvail().x;
  const float each = std::min(look.px(230), (room - look.px(18)) / 4);
  if (begin_picker(look, "table", shown.table->name, each)) {
    for (const auto& table : view.tables)
      if (ImGui::Selectable(table->name.c_str(), table.get() == shown.table)) {
        scope.table = table->name;
        scope.column.clear();
        scope.source.clear();
        scope.gpu.clear();
        scope.row.reset();
      }
    end_picker();
  }
  if (shown.column && shown.table->columns.size() > 1) {
    ImGui::SameLine(0, look.px(6));
    if (begin_picker(look, "column", column_title(shown.column->name), each)) {
      for (const ValidatedColumn& column : shown.table->columns)
        if (ImGui::Selectable(column_title(column.name).c_str(), &column == shown.column))
          scope.column = column.name;
      end_picker();
    }
  }
  filter_picker(context, "source", "sources", scope.source, shown.table->sources, each);
  filter_picker(context, "gpu", "GPUs", scope.gpu, shown.table->gpus, std::min(each, look.px(150)));
  if (room >= look.px(1000)) {
    const float width = look.px(440);
    ImGui::SameLine(0, look.px(6));
    const float right = ImGui::GetCursorPosX() + ImGui::GetContentRegionAvail().x - width;
    ImGui::SetCursorPosX(std::max(ImGui::GetCursorPosX(), right));
    draw_open_field(context, std::min(width, ImGui::GetContentRegionAvail().x));
  }
}

struct Axis {
  double low = 1, high = 10;
};

Axis axis_of(const std::vector<const ValidationPoint*>& points) {
  Axis axis{1e300, 0};
  for (const ValidationPoint* point : points) {
    axis.low = std::min({axis.low, point->measured, point->predicted});
    axis.high = std::max({axis.high, point->measured, point->predicted});
  }
  if (!(axis.high > 0)) return {};
  const double margin = std::max(1.15, std::pow(axis.high / axis.low, 0.04));
  return {axis.low / margin, axis.high * margin};
}

void describe(const Look& look, const ValidatedTable& table, const ValidationPoint& point) {
  const Palette& c = look.color();
  ImGui::BeginTooltip();
  const std::string& gpu = table.gpus[point.gpu];
  text(look, TextRole::title, c.text, table.sources[point.source] + (gpu.empty() ? "" : ", " + gpu));
  text(look, TextRole::number, c.measured, "measured  " + significant(point.measured, 4));
  text(look, TextRole::number, c.predicted,
       "predicted " + significant(point.predicted, 4) + ", 90 % in " + significant(point.low, 4) + " to " +
           significant(point.high, 4));
  text(look, TextRole::number, point.inside() ? c.text : c.bad,
       "error " + signed_percent(point.error) + (point.inside() ? ", inside" : ", outside") + " the band");
  ImGui::EndTooltip();
}

// Where points have been drawn: thousands that share a pixel are one.
class Occupied {
 public:
  bool take(ImVec2 at, ImVec2 least, std::size_t color) {
    const auto x = static_cast<std::size_t>(std::max(0.0f, (at.x - least.x) / kCell)) % kAcross;
    const auto y = static_cast<std::size_t>(std::max(0.0f, (at.y - least.y) / kCell)) % kAcross;
    auto cell = taken_[((y * kAcross + x) * kColors + color % kColors)];
    if (cell) return false;
    cell = true;
    return true;
  }

 private:
  static constexpr float kCell = 2;
  static constexpr std::size_t kAcross = 1024, kColors = 8;
  std::vector<bool> taken_ = std::vector<bool>(kAcross * kAcross * kColors);
};

void draw_scatter(const Context& context, const Shown& shown, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  ValidationState& scope = context.state;
  const Axis axis = axis_of(shown.points);
  const std::string title = column_title(shown.column->name);
  const TextScope axes(look, TextRole::caption);
  ImPlot::PushStyleVar(ImPlotStyleVar_MinorAlpha, 0.0f);
  if (!ImPlot::BeginPlot("##scatter", size, ImPlotFlags_CanvasOnly | ImPlotFlags_NoFrame))
    return ImPlot::PopStyleVar();
  ImPlot::SetupAxes(("measured " + title).c_str(), ("predicted " + title).c_str(),
                    ImPlotAxisFlags_NoHighlight, ImPlotAxisFlags_NoHighlight);
  ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
  ImPlot::SetupAxisScale(ImAxis_Y1, ImPlotScale_Log10);
  label_axis(ImAxis_X1);
  label_axis(ImAxis_Y1);
  // Until the user moves it, and again for every other choice of points.
  const std::string choice =
      shown.table->name + "/" + shown.column->name + "/" + scope.source + "/" + scope.gpu;
  const bool again = context.frozen || scope.framed != choice;
  ImPlot::SetupAxesLimits(axis.low, axis.high, axis.low, axis.high,
                          again ? ImPlotCond_Always : ImPlotCond_Once);
  scope.framed = choice;
  ImPlot::PushPlotClipRect();
  ImDrawList* list = ImPlot::GetPlotDrawList();
  const ImPlotRect limits = ImPlot::GetPlotLimits();
  const ImVec2 least = ImPlot::GetPlotPos();
  const ImVec2 most = {least.x + ImPlot::GetPlotSize().x, least.y + ImPlot::GetPlotSize().y};
  LabelPlacer labels({least.x + look.px(4), least.y + look.px(3)},
                     {most.x - look.px(4), most.y - look.px(3)});

  // y = x, and the measured values that the middle one of the stated bands allows.
  std::vector<double> below, above;
  for (const ValidationPoint* point : shown.points) {
    below.push_back(point->predicted / point->high);
    above.push_back(point->predicted / point->low);
  }
  const auto line = [&](double times) {
    return std::array<ImVec2, 2>{ImPlot::PlotToPixels(limits.X.Min, limits.X.Min * times),
                                 ImPlot::PlotToPixels(limits.X.Max, limits.X.Max * times)};
  };
  if (!shown.points.empty()) {
    const auto low = line(sim::quantile(below, 0.5)), high = line(sim::quantile(above, 0.5));
    list->AddQuadFilled(low[0], low[1], high[1], high[0], with_alpha(c.predicted, 0.10f));
    dashed_line(list, look, low, with_alpha(c.predicted, 0.7f), look.px(1));
    dashed_line(list, look, high, with_alpha(c.predicted, 0.7f), look.px(1));
  }
  const auto diagonal = line(1);
  list->AddLine(diagonal[0], diagonal[1], c.ceiling, look.px(1.5f));

  const ValidationPoint *hovered = nullptr, *selected = nullptr;
  float nearest = look.px(10);
  const ImVec2 mouse = ImGui::GetMousePos();
  const bool many = shown.points.size() > 2000;
  const float radius = look.px(many ? 2.0f : 3.2f);
  Occupied occupied;
  for (const ValidationPoint* point : shown.points) {
    const ImVec2 at = ImPlot::PlotToPixels(point->measured, point->predicted);
    if (at.x < least.x || at.x > most.x || at.y < least.y || at.y > most.y) continue;
    if (scope.row && *scope.row == point->row) selected = point;
    const float distance = std::hypot(mouse.x - at.x, mouse.y - at.y);
    if (distance < nearest) {
      nearest = distance;
      hovered = point;
    }
    if (!occupied.take(at, least, point->source)) continue;
    const ImU32 color = source_color(look, point->source);
    if (many)
      list->AddRectFilled({at.x - radius, at.y - radius}, {at.x + radius, at.y + radius},
                          with_alpha(color, 0.8f));
    else if (point->inside())
      list->AddCircleFilled(at, radius, with_alpha(color, 0.85f), 10);
    else
      list->AddCircle(at, radius, color, 10, look.px(1.3f));
  }
  if (selected) {
    const ImVec2 at = ImPlot::PlotToPixels(selected->measured, selected->predicted);
    // Its own band, in which the measurement should lie.
    list->AddLine(ImPlot::PlotToPixels(selected->low, selected->predicted),
                  ImPlot::PlotToPixels(selected->high, selected->predicted), c.predicted, look.px(2));
    list->AddCircle(at, radius + look.px(3), c.text, 0, look.px(2));
  }
  // In the corner that the diagonal leaves empty.
  float y = least.y + look.px(8);
  for (const std::string& words :
       {std::string("filled: inside its 90 % band"), std::string("hollow: outside"),
        "strip: the middle band of the " + sim::format_count(static_cast<std::int64_t>(shown.points.size())) +
            " rows"}) {
    if (many && !words.starts_with("strip")) continue;
    draw_text(list, look, TextRole::caption, {least.x + look.px(10), y}, c.dim, words);
    y += text_size_of(look, TextRole::caption, words).y + look.px(2);
  }
  ImPlot::PopPlotClipRect();
  if (hovered && ImPlot::IsPlotHovered()) {
    describe(look, *shown.table, *hovered);
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) scope.row = hovered->row;
  }
  ImPlot::EndPlot();
  ImPlot::PopStyleVar();
}

void draw_summaries(const Context& context, const Shown& shown, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  ValidationState& scope = context.state;
  constexpr ImGuiTableFlags flags =
      ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_PadOuterX;
  const auto& summaries = shown.table->summaries;
  std::vector<const char*> headings = {"source", "GPU",  "rows", "predicted", "median",
                                       "mean",   "90th", "bias", "in band"};
  // For tables that say whether a run fitted: how often that is foreseen, of those that did and did not
  // alike.
  const bool outcomes = summaries.front().fitted + summaries.front().failed > 0;
  if (outcomes) headings.push_back("outcome");
  if (!ImGui::BeginTable("summaries", static_cast<int>(headings.size()), flags, size)) return;
  ImGui::TableSetupScrollFreeze(0, 2);
  ImGui::TableSetupColumn("source", ImGuiTableColumnFlags_WidthStretch);
  // As wide as what stands in them; where there is no room for all, the median and the band stay longest.
  static constexpr std::array kRanks = {4, 3, 1, 8, 2, 6, 5, 7, 0};
  constexpr float kLeastName = 110;
  const float padding = 2 * ImGui::GetStyle().CellPadding.x;
  std::vector<Droppable> others;
  float gpu = look.px(96);
  for (const sim::ErrorSummary& s : summaries)
    gpu = std::max(gpu, text_size_of(look, TextRole::body, s.gpu).x + look.px(2));
  for (std::size_t i = 1; i < headings.size(); ++i) {
    const float heading = text_size_of(look, TextRole::caption, headings[i]).x + look.px(2);
    const float number =
        text_size_of(look, TextRole::number, i == 2 ? "00,000" : "\u221200.0 %").x + look.px(2);
    others.push_back({std::max(heading, i == 1 ? gpu : number) + padding, kRanks[i - 1]});
  }
  const std::vector<bool> shown_columns =
      columns_beside(look.px(kLeastName), others, size.x - ImGui::GetStyle().ScrollbarSize - padding);
  for (std::size_t i = 1; i < headings.size(); ++i)
    ImGui::TableSetupColumn(
        headings[i],
        ImGuiTableColumnFlags_WidthFixed | (shown_columns[i - 1] ? 0 : ImGuiTableColumnFlags_Disabled),
        others[i - 1].width - padding);
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (std::size_t i = 0; i < headings.size(); ++i) {
    ImGui::TableNextColumn();
    (i < 2 ? text : text_right)(look, TextRole::caption, c.dim, headings[i]);
  }
  const float line = text_size_of(look, TextRole::body, "x").y;
  for (const sim::ErrorSummary& s : summaries) {
    const bool whole = &s == &summaries.front();
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    ImGui::PushID(&s);
    const ImVec2 at = ImGui::GetCursorPos();
    const bool chosen = whole ? scope.source.empty() && scope.gpu.empty()
                              : scope.source == s.source && (scope.gpu.empty() || scope.gpu == s.gpu);
    if (ImGui::Selectable("##row", chosen, ImGuiSelectableFlags_SpanAllColumns, {0, line})) {
      scope.source = whole || (chosen && !scope.gpu.empty()) ? "" : s.source;
      scope.gpu = whole || scope.source.empty() ? "" : s.gpu;
    }
    ImGui::PopID();
    ImGui::SetCursorPos(at);
    if (!whole) {
      const ImVec2 screen = ImGui::GetCursorScreenPos();
      const float swatch = std::floor(look.px(9));
      ImGui::GetWindowDrawList()->AddRectFilled(
          {screen.x, screen.y + (line - swatch) / 2}, {screen.x + swatch, screen.y + (line + swatch) / 2},
          source_color(look, index_of(shown.table->sources, s.source)), look.px(2));
      ImGui::SetCursorPosX(at.x + swatch + look.px(6));
    }
    text_fitted(look, TextRole::body, c.text, whole ? std::string(kAll) : s.source,
                ImGui::GetContentRegionAvail().x);
    ImGui::TableNextColumn();
    text_fitted(look, TextRole::body, c.dim, s.gpu, ImGui::GetContentRegionAvail().x);
    const auto number = [&](ImU32 color, const std::string& words) {
      ImGui::TableNextColumn();
      text_right(look, TextRole::number, color, words);
    };
    const bool any = s.compared > 0;
    number(c.dim, sim::format_count(static_cast<std::int64_t>(s.rows)));
    number(c.dim, s.rows > 0
                      ? sim::format_percent(static_cast<double>(s.predicted) / static_cast<double>(s.rows))
                      : "");
    number(c.predicted, any ? sim::format_percent(s.median) : "");
    number(c.predicted, any ? sim::format_percent(s.mean) : "");
    number(c.predicted, any ? sim::format_percent(s.p90) : "");
    number(c.dim, any ? signed_percent(s.bias) : "");
    // A band that says 90 % and holds far less is a promise that is broken.
    constexpr double kPromised = 0.85;
    number(any && s.inside_band < kPromised ? c.bad : c.dim, any ? sim::format_percent(s.inside_band) : "");
    if (outcomes)
      number(c.predicted, s.fitted + s.failed > 0 ? sim::format_percent(s.balanced_accuracy()) : "");
  }
  ImGui::EndTable();
}

// The row that was picked: prediction beside measurement, then its cells as they stand in the table.
void draw_row(const Context& context, const Shown& shown, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  ValidationState& scope = context.state;
  const ValidatedTable& table = *shown.table;
  if (!ImGui::BeginChild("row", size)) return ImGui::EndChild();
  // Until one is picked: the one that is farthest off.
  const bool picked = scope.row && *scope.row < table.table.rows.size();
  const auto worst =
      std::max_element(shown.points.begin(), shown.points.end(), [](const auto* a, const auto* b) {
        return std::abs(std::log(a->predicted / a->measured)) <
               std::abs(std::log(b->predicted / b->measured));
      });
  if (!picked && worst == shown.points.end()) {
    text_wrapped(look, TextRole::caption, c.mute,
                 "No row of this choice has both a prediction and a measurement.");
    return ImGui::EndChild();
  }
  const std::size_t row = picked ? *scope.row : (*worst)->row;
  text_fitted(look, TextRole::title, c.text,
              (picked ? "Row " : "Farthest off, row ") +
                  sim::format_count(static_cast<std::int64_t>(row) + 1) + ": " +
                  table.sources[table.row_source[row]],
              ImGui::GetContentRegionAvail().x);
  if (!picked) text(look, TextRole::caption, c.mute, "Click a point to see its own.");
  const sim::ValidatedRow& validated = table.validation.rows[row];
  if (!validated.why_not.empty())
    text_wrapped(look, TextRole::body, c.bad, "Not predicted: " + validated.why_not);
  constexpr ImGuiTableFlags flags = ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_PadOuterX;
  if (!validated.predictions.empty() && ImGui::BeginTable("predictions", 5, flags)) {
    ImGui::TableSetupColumn("", ImGuiTableColumnFlags_WidthStretch);
    for (const float width : {76.0f, 76.0f, 150.0f, 70.0f})
      ImGui::TableSetupColumn("", ImGuiTableColumnFlags_WidthFixed, look.px(width));
    ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
    for (const char* heading : {"", "measured", "predicted", "90 % band", "error"}) {
      ImGui::TableNextColumn();
      text_right(look, TextRole::caption, c.dim, heading);
    }
    for (const sim::Prediction& p : validated.predictions) {
      const auto compared = sim::compare_row(table.table, row, table.validation, p.column);
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      text_fitted(look, TextRole::body, c.text, column_title(p.column), ImGui::GetContentRegionAvail().x);
      ImGui::TableNextColumn();
      text_right(look, TextRole::number, c.measured, compared ? significant(compared->measured, 4) : "");
      ImGui::TableNextColumn();
      // An outcome is a word, and has no band.
      const bool is_word = !p.words.empty();
      text_right(look, TextRole::number, c.predicted,
                 is_word ? std::string(p.words) : significant(p.value, 4));
      ImGui::TableNextColumn();
      if (!is_word)
        text_right(look, TextRole::number, c.dim, significant(p.low, 4) + " to " + significant(p.high, 4));
      ImGui::TableNextColumn();
      if (compared)
        text_right(look, TextRole::number, compared->inside() ? c.text : c.bad,
                   signed_percent(difference(*compared)));
    }
    ImGui::EndTable();
  }
  if (ImGui::BeginTable("facts", 2, flags)) {
    ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed, look.px(150));
    ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
    for (std::size_t i = 0; i < table.table.header.size(); ++i) {
      const std::string& cell = table.table.rows[row][i];
      if (cell.empty()) continue;
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      text_fitted(look, TextRole::caption, c.dim, table.table.header[i], ImGui::GetContentRegionAvail().x);
      ImGui::TableNextColumn();
      text_wrapped(look, TextRole::caption, c.text, cell);
    }
    ImGui::EndTable();
  }
  ImGui::EndChild();
}

void draw_own_progress(const Context& context) {
  const StudyProgress& progress = context.state.own.progress();
  const Palette& c = context.look.color();
  if (progress.running)
    text(context.look, TextRole::caption, c.measured,
         progress.done == 0 ? "This machine is calibrated first, where it is not yet."
                            : "measured here: " + sim::format_count(progress.done) + " of " +
                                  sim::format_count(progress.of) + " runs");
  else if (!progress.failure.empty())
    text_wrapped(context.look, TextRole::caption, c.bad, "Not measured: " + progress.failure);
}

void draw_progress(const Context& context) {
  const StudyProgress& progress = context.state.study.progress();
  if (!progress.running || context.state.own.progress().running) return;
  std::string words = "predicting " + progress.part;
  if (progress.of > 0)
    words += ": " + sim::format_count(progress.done) + " of " + sim::format_count(progress.of) + " rows";
  text(context.look, TextRole::caption, context.look.color().dim, words);
}

std::string caption(const Context& context) {
  const Shown shown = choose(context.state);
  if (!shown.table || shown.table->summaries.empty()) return "";
  const sim::ErrorSummary& all = shown.table->summaries.front();
  return all.compared == 0 ? "nothing to compare"
                           : "median error " + sim::format_percent(all.median) + " over " +
                                 counted(static_cast<std::int64_t>(all.compared), "row");
}

void draw(const Context& context) {
  const Look& look = context.look;
  if (!context.state.started()) context.state.start();
  context.state.follow_own();
  const Shown shown = choose(context.state);
  if (!shown.table) {
    const StudyProgress& progress = context.state.study.progress();
    if (progress.running)
      return draw_empty_state(
          context, "Predicting " + progress.part,
          sim::format_count(progress.done) + " of " + sim::format_count(progress.of) + " rows.");
    draw_open_field(context, std::min(ImGui::GetContentRegionAvail().x, look.px(460)));
    return draw_empty_state(context, "No measurements yet",
                            "Put tables of published measurements (CSV) into presets/published, or open one "
                            "above: each row is predicted and shown beside what was measured.");
  }
  draw_controls(context, shown);
  draw_progress(context);
  draw_own_progress(context);
  if (!shown.table->failure.empty())
    return draw_empty_state(context, "This table cannot be predicted", shown.table->failure);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float gap = look.px(14);
  if (room.x >= look.px(900)) {
    const float left = std::floor(std::min(room.x * 0.5f, room.y * 1.15f));
    if (shown.column) draw_scatter(context, shown, {left, room.y});
    if (shown.column) ImGui::SameLine(0, gap);
    ImGui::BeginGroup();
    const float width = ImGui::GetContentRegionAvail().x;
    const float line = text_size_of(look, TextRole::body, "x").y + 2 * ImGui::GetStyle().CellPadding.y + 1;
    const float wanted = line * static_cast<float>(shown.table->summaries.size() + 1) + look.px(6);
    draw_summaries(context, shown, {width, std::min(wanted, room.y * 0.5f)});
    draw_row(context, shown, {width, ImGui::GetContentRegionAvail().y});
    ImGui::EndGroup();
    return;
  }
  static constexpr std::array<std::string_view, 3> tabs = {"scatter", "by source", "row"};
  ValidationState& scope = context.state;
  if (const auto tab = segmented(look, "tab", static_cast<std::size_t>(scope.tab), tabs))
    scope.tab = static_cast<int>(*tab);
  ImGui::SameLine(0, look.px(12));
  if (const float left = ImGui::GetContentRegionAvail().x; left > look.px(180))
    draw_open_field(context, left);
  else
    ImGui::NewLine();
  const ImVec2 rest = ImGui::GetContentRegionAvail();
  if (scope.tab == 0 && shown.column) draw_scatter(context, shown, rest);
  if (scope.tab == 1) draw_summaries(context, shown, rest);
  if (scope.tab == 2) draw_row(context, shown, rest);
}

std::vector<Figure> figures(const Context& context) {
  const Shown shown = choose(context.state);
  if (!shown.column) return {};
  FigureTable table{{{"row", Measure::count},
                     {"source"},
                     {"GPU"},
                     {"measured"},
                     {"predicted"},
                     {"low"},
                     {"high"},
                     {"error", Measure::share}},
                    {}};
  for (std::size_t column = 3; column < 7; ++column) table.columns[column].measure = Measure::plain;
  for (const ValidationPoint* p : shown.points)
    table.rows.push_back({static_cast<double>(p->row + 1), shown.table->sources[p->source],
                          shown.table->gpus[p->gpu], p->measured, p->predicted, p->low, p->high, p->error});
  return {{shown.table->name + ", " + column_title(shown.column->name), std::move(table)}};
}

}  // namespace

ValidationState::ValidationState(const PanelTools& tools)
    : study(tools.studies.add<OpenedFiles, ValidationView>(
          [studies = ValidationStudies()](const OpenedFiles& files, const auto& course) mutable {
            return studies.study(files, course);
          })),
      own(tools.studies.add<SeriesToMeasure, OwnMeasurements>(measure_series)),
      executable(cli::executable_path()),
      own_file((tools.settings_directory.empty() ? std::filesystem::temp_directory_path() / "ridgepoint"
                                                 : tools.settings_directory) /
               "this machine.csv") {
  tools.commands.add({.id = "validation.start",
                      .category = "Panels",
                      .label = "Predict the published tables",
                      .run = [this] { start(); },
                      .enabled = [this] { return !started(); },
                      .in_menu = false});
  tools.commands.add({.id = "validation.open",
                      .category = "Panels",
                      .label = "Open the table named in Validation",
                      .run = [this] { open(path); },
                      .enabled = [this] { return !path.empty(); },
                      .in_menu = false});
  tools.commands.add({.id = "validation.measure",
                      .category = "Panels",
                      .label = "Measure how right predictions are on this machine",
                      .run = [this] { measure_here(); },
                      .enabled = [this] { return can_measure(); },
                      .in_menu = false});
  tools.commands.add({.id = "validation.stop",
                      .category = "Panels",
                      .label = "Stop measuring how right predictions are",
                      .run = [this] { own.cancel(); },
                      .enabled = [this] { return own.progress().running; },
                      .in_menu = false});
}

void ValidationState::start() {
  if (started()) return;
  files_ = published_tables();
  study.follow(*files_);
}

void ValidationState::measure_here() {
  own_runs_ = 0;
  own.ask({executable, kOwnSeries, own_file, ++attempts_});
}

void ValidationState::follow_own() {
  const OwnMeasurements* const measured = own.result();
  if (!measured || attempts_ == 0 || own.request().attempt != attempts_ || measured->runs == own_runs_)
    return;
  // Whoever looks at another table meanwhile is not called back.
  if (own_runs_ == 0)
    open(measured->file);
  else
    add(measured->file);
  own_runs_ = measured->runs;
}

bool ValidationState::open(const std::filesystem::path& file) {
  if (file.extension() == ".md" || is_class_guesses(file)) return false;  // of lessons
  table = file.filename().string();
  column.clear();
  row.reset();
  add(file);
  return true;
}

void ValidationState::add(const std::filesystem::path& file) {
  start();
  files_->push_back(file);
  study.follow(*files_);
}

extern const PanelEntry validation_panel = {"validation",
                                            "Validation",
                                            "predictions beside what others measured",
                                            Dock::lower_right,
                                            panel_of<ValidationState, caption, draw, figures>,
                                            false,
                                            false};

}  // namespace app::gui
