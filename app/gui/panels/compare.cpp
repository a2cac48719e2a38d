// Where prediction and kernels part: every operation with both times beside each other.
#include <imgui.h>
#include <misc/cpp/imgui_stdlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "app/counted.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::gui {
namespace {

struct CompareState {
  std::string filter;  // words of the operations that are shown; empty: all
};

enum class Column { operation, phase, count, predicted, measured, ratio, bound, bars };
constexpr int kColumns = 8;
constexpr float kLeastName = 170;  // of an operation, points

// A prediction that misses by more than this is called out in red: the issue's own yardstick for a step.
constexpr double kMissed = 0.2;

bool contains(const std::string& text, const std::string& words) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), words.begin(), words.end(), same) != text.end();
}

double duration(const std::optional<sim::Row>& row) {
  return row ? row->duration.value : 0;
}

double sort_key(const sim::ComparedRow& row, Column column) {
  switch (column) {
    case Column::count:
      return static_cast<double>(row.b ? row.b->count : row.a->count);
    case Column::predicted:
      return duration(row.a);
    case Column::measured:
      return duration(row.b);
    case Column::ratio:
      return row.ratio().value_or(0);
    case Column::phase:
      return static_cast<double>(row.phase);
    case Column::bound:
      return row.a ? static_cast<double>(row.a->bound) : -1;
    case Column::bars:
      return std::max(duration(row.a), duration(row.b));
    case Column::operation:
      return 0;
  }
  return 0;
}

std::vector<const sim::ComparedRow*> visible_rows(const sim::Comparison& comparison,
                                                  const std::string& filter) {
  std::vector<const sim::ComparedRow*> rows;
  for (const sim::ComparedRow& row : comparison.rows)
    if (filter.empty() || contains(std::string(sim::name(row.phase)) + " " + row.id, filter))
      rows.push_back(&row);
  const ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs();
  if (!specs || specs->SpecsCount == 0) return rows;
  const auto column = static_cast<Column>(specs->Specs[0].ColumnIndex);
  const bool down = specs->Specs[0].SortDirection == ImGuiSortDirection_Descending;
  std::stable_sort(rows.begin(), rows.end(), [&](const sim::ComparedRow* a, const sim::ComparedRow* b) {
    if (down) std::swap(a, b);
    return column == Column::operation ? a->id < b->id : sort_key(*a, column) < sort_key(*b, column);
  });
  return rows;
}

// What the prediction says of its own error.
struct Band {
  sim::Seconds low, high;
  bool known() const { return high > low; }
  bool holds(sim::Seconds measured) const { return low <= measured && measured <= high; }
};

// The row whose miss weighs most in the step, not the one with the wildest ratio.
const sim::ComparedRow* worst_row(const sim::Comparison& comparison) {
  const sim::ComparedRow* worst = nullptr;
  double miss = 0;
  for (const sim::ComparedRow& row : comparison.rows) {
    if (!row.a || !row.b) continue;
    const double distance = std::abs(duration(row.b) - duration(row.a));
    if (distance > miss) {
      miss = distance;
      worst = &row;
    }
  }
  return worst;
}

std::string ratio_text(double ratio) {
  return ScaleUnit{1, ""}.digits(ratio);
}

// A time as text whose unit stays on its line.
std::string written(sim::Seconds time) {
  return unbroken(sim::format(time));
}

void draw_verdict(const PanelContext& context, const sim::Comparison& comparison) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const double a = sim::step_time(comparison.a).value, b = sim::step_time(comparison.b).value;
  const bool train = comparison.b.source.scenario.workload.task == sim::Task::train;
  if (a > 0 && b > 0) {
    const double off = b / a - 1;
    const Band band = {comparison.a.step_low, comparison.a.step_high};
    std::string words =
        std::string(train ? "The step" : "The generation") + " took " + written(sim::Seconds{b}) +
        ", predicted " + written(sim::Seconds{a}) + ": " +
        (off > 1 ? ratio_text(b / a) + " times as long"
                 : unbroken(sim::format_percent(std::abs(off))) + (off > 0 ? " slower" : " faster"));
    if (band.known())
      words += std::string(band.holds({b}) ? ", within" : ", outside") + " the predicted band of " +
               written(band.low) + " to " + written(band.high);
    const bool missed = band.known() ? !band.holds({b}) : std::abs(off) > kMissed;
    text_wrapped(look, TextRole::title, missed ? c.bad : c.text, words + ".");
  }
  const sim::ComparedRow* worst = worst_row(comparison);
  if (!worst || b <= 0) return;
  const double miss = duration(worst->b) - duration(worst->a);
  const Band band = {worst->a->low, worst->a->high};
  std::string words = "Farthest off is " + worst->id;
  // Most ids say their phase themselves.
  if (worst->id.find(sim::name(worst->phase)) == std::string::npos)
    words += " in " + std::string(sim::name(worst->phase));
  words += ", " + written(worst->b->duration) + " instead of " + written(worst->a->duration) + ": " +
           written(sim::Seconds{std::abs(miss)}) + (miss > 0 ? " longer, " : " shorter, ") +
           unbroken(sim::format_percent(std::abs(miss) / b)) +
           (train ? " of the step" : " of the generation");
  if (band.known()) words += band.holds(worst->b->duration) ? ", within its band" : ", outside its band";
  text_wrapped(look, TextRole::caption, c.dim, words + ".");
}

// Headings of numbers stand over their last digit.
void draw_header(const Look& look) {
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  struct Heading {
    const char* words;
    bool number;
  };
  static constexpr std::array<Heading, kColumns> headings = {{{"operation", false},
                                                              {"phase", false},
                                                              {"count", true},
                                                              {"predicted", true},
                                                              {"measured", true},
                                                              {"ratio", true},
                                                              {"bound by", false},
                                                              {"time", false}}};
  const TextScope caption(look, TextRole::caption);
  for (int column = 0; column < kColumns; ++column) {
    if (!ImGui::TableSetColumnIndex(column)) continue;
    const Heading& heading = headings[static_cast<std::size_t>(column)];
    ImGui::PushStyleColor(ImGuiCol_Text, look.color().dim);
    if (heading.number) {
      const ImVec2 at = ImGui::GetCursorScreenPos();
      const float width = ImGui::GetContentRegionAvail().x;
      ImGui::TableHeader((std::string("##") + heading.words).c_str());
      draw_text(ImGui::GetWindowDrawList(), look, TextRole::caption, {at.x + width, at.y}, look.color().dim,
                heading.words, {1, 0});
    } else {
      ImGui::TableHeader(heading.words);
    }
    ImGui::PopStyleColor();
  }
}

// Both times as bars, to one scale: the predicted one as an outline, the measured one filled.
void draw_bars(const Look& look, double predicted, double measured, double longest) {
  const Palette& c = look.color();
  if (longest <= 0) return;
  const ImVec2 least = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const float height = text_size_of(look, TextRole::number, "x").y;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float thickness = std::max(2.0f, std::floor(look.px(5)));
  const float top = std::floor(least.y + height / 2 - thickness - look.px(0.5f));
  const auto bar = [&](double value, float y, ImU32 color) {
    const float length = std::max(1.0f, width * static_cast<float>(value / longest));
    if (value > 0) list->AddRectFilled({least.x, y}, {least.x + length, y + thickness}, color, look.px(1.5f));
  };
  bar(predicted, top, with_alpha(c.predicted, 0.75f));
  bar(measured, top + thickness + std::floor(look.px(1)), c.measured);
}

void draw_row(const PanelContext& context, const sim::ComparedRow& row, double longest) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const std::string key = std::string(sim::name(row.phase)) + " " + row.id;
  ImGui::TableNextRow();
  if (context.view.hovered_operation == key)
    ImGui::TableSetBgColor(ImGuiTableBgTarget_RowBg0, with_alpha(c.predicted, 0.12f));
  ImGui::TableNextColumn();
  const bool selected =
      context.view.selection.quantity == Quantity::operation && context.view.selection.operation == key;
  ImGui::PushID(key.c_str());
  const ImVec2 at = ImGui::GetCursorPos();
  if (ImGui::Selectable("##row", selected, ImGuiSelectableFlags_SpanAllColumns,
                        {0, text_size_of(look, TextRole::number, "x").y}))
    context.view.selection = {Quantity::operation, 0, key};
  ImGui::SetCursorPos(at);
  ImGui::PopID();
  text_fitted(look, TextRole::number, c.text, row.title(), ImGui::GetContentRegionAvail().x);
  ImGui::TableNextColumn();
  text(look, TextRole::caption, c.dim, sim::name(row.phase));
  ImGui::TableNextColumn();
  text_right(look, TextRole::number, c.dim, sim::format_count(row.b ? row.b->count : row.a->count));
  ImGui::TableNextColumn();
  text_right(look, TextRole::number, c.predicted, row.a ? sim::format(row.a->duration) : "none");
  ImGui::TableNextColumn();
  text_right(look, TextRole::number, c.measured, row.b ? sim::format(row.b->duration) : "none");
  ImGui::TableNextColumn();
  if (const auto ratio = row.ratio()) {
    const bool missed = *ratio > 1 + kMissed || *ratio < 1 / (1 + kMissed);
    text_right(look, TextRole::number, missed ? c.bad : c.text, ratio_text(*ratio));
  }
  ImGui::TableNextColumn();
  if (row.a) text(look, TextRole::caption, c.dim, sim::name(row.a->bound));
  if (ImGui::TableNextColumn()) draw_bars(look, duration(row.a), duration(row.b), longest);
}

void draw_total(const PanelContext& context, const sim::Comparison& comparison) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const sim::Seconds a = sim::step_time(comparison.a), b = sim::step_time(comparison.b);
  ImGui::TableNextRow();
  ImGui::TableSetBgColor(ImGuiTableBgTarget_RowBg0, c.raised);
  ImGui::TableNextColumn();
  const bool train = comparison.b.source.scenario.workload.task == sim::Task::train;
  text(look, TextRole::number, c.text, train ? "step" : "generation");
  ImGui::TableNextColumn();
  ImGui::TableNextColumn();
  ImGui::TableNextColumn();
  text_right(look, TextRole::number, c.predicted, sim::format(a));
  ImGui::TableNextColumn();
  text_right(look, TextRole::number, c.measured, sim::format(b));
  ImGui::TableNextColumn();
  if (a.value > 0) text_right(look, TextRole::number, c.text, ratio_text(b / a));
}

std::string caption(const PanelContext& context) {
  const RunView& run = context.run();
  if (!run.comparison) return "";
  const sim::Comparison& joined = *run.comparison;
  return counted(static_cast<std::int64_t>(joined.joined), "operation") + " joined, " +
         sim::format_count(static_cast<std::int64_t>(joined.only_a)) + " predicted only, " +
         sim::format_count(static_cast<std::int64_t>(joined.only_b)) + " measured only";
}

void draw(const ContextWith<CompareState>& context) {
  const RunView& run = context.run();
  const Look& look = context.look;
  if (!run.comparison) {
    if (run.active())
      draw_empty_state(context, "Running",
                       "Every operation is timed by its id. The table appears with the first measured rows.");
    else
      draw_empty_state(
          context, "Nothing measured yet",
          "Run this scenario, and every operation of the plan stands here twice: as predicted, and as "
          "your machine's kernels took it.",
          "Start", "run.start");
    return;
  }
  draw_verdict(context, *run.comparison);
  ImGui::SetNextItemWidth(std::min(look.px(260), ImGui::GetContentRegionAvail().x));
  ImGui::InputTextWithHint("##filter", "Filter by operation or phase", &context.state.filter);
  constexpr ImGuiTableFlags flags = ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersInnerH |
                                    ImGuiTableFlags_Sortable | ImGuiTableFlags_SortTristate |
                                    ImGuiTableFlags_Hideable | ImGuiTableFlags_NoBordersInBody;
  ImGui::PushStyleVar(ImGuiStyleVar_CellPadding, ImVec2(look.px(5), look.px(3)));
  if (ImGui::BeginTable("rows", kColumns, flags, ImGui::GetContentRegionAvail())) {
    const float room = ImGui::GetContentRegionAvail().x;
    // What can be missed first has the lowest rank; the two times never go.
    struct Fixed {
      const char* name;
      float width;
      int rank;
    };
    static constexpr std::array<Fixed, 6> fixed = {{{"phase", 62, 2},
                                                    {"count", 46, 0},
                                                    {"predicted", 68, 5},
                                                    {"measured", 68, 4},
                                                    {"ratio", 42, 3},
                                                    {"bound by", 60, 1}}};
    std::vector<Droppable> others;
    for (const Fixed& column : fixed) others.push_back({look.px(column.width + 10), column.rank});
    const std::vector<bool> shown = columns_beside(look.px(kLeastName), others, room);
    ImGui::TableSetupScrollFreeze(0, 1);
    // Where there is room for bars they take it, else the names do.
    const bool bars = room > look.px(820);
    ImGui::TableSetupColumn("operation",
                            (bars ? ImGuiTableColumnFlags_WidthFixed : ImGuiTableColumnFlags_WidthStretch) |
                                ImGuiTableColumnFlags_NoHide,
                            bars ? look.px(290) : 0);
    for (std::size_t i = 0; i < fixed.size(); ++i)
      ImGui::TableSetupColumn(
          fixed[i].name, ImGuiTableColumnFlags_WidthFixed | (shown[i] ? 0 : ImGuiTableColumnFlags_Disabled),
          look.px(fixed[i].width));
    ImGui::TableSetupColumn("time",
                            ImGuiTableColumnFlags_WidthStretch | (bars ? 0 : ImGuiTableColumnFlags_Disabled));
    draw_header(look);
    draw_total(context, *run.comparison);
    const auto rows = visible_rows(*run.comparison, context.state.filter);
    double longest = 0;
    for (const sim::ComparedRow* row : rows)
      longest = std::max({longest, duration(row->a), duration(row->b)});
    ImGuiListClipper clipper;
    clipper.Begin(static_cast<int>(rows.size()));
    while (clipper.Step())
      for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i)
        draw_row(context, *rows[static_cast<std::size_t>(i)], longest);
    ImGui::EndTable();
  }
  ImGui::PopStyleVar();
}

std::vector<Figure> figures(const ContextWith<CompareState>& context) {
  const RunView& run = context.run();
  if (!run.comparison) return {};
  FigureTable table{{{"operation"},
                     {"phase"},
                     {"count", Measure::count},
                     {"predicted", Measure::seconds},
                     {"measured", Measure::seconds},
                     {"ratio"},
                     {"bound by"}},
                    {}};
  const auto seconds = [](const std::optional<sim::Row>& row) {
    return row ? Cell(row->duration.value) : Cell();
  };
  for (const sim::ComparedRow* row : visible_rows(*run.comparison, context.state.filter)) {
    const auto ratio = row->ratio();
    table.rows.push_back({row->title(), std::string(sim::name(row->phase)),
                          static_cast<double>(row->b ? row->b->count : row->a->count), seconds(row->a),
                          seconds(row->b), ratio ? Cell(ratio_text(*ratio)) : Cell(),
                          row->a ? Cell(std::string(sim::name(row->a->bound))) : Cell()});
  }
  return {{"Predicted and measured", std::move(table)}};
}

}  // namespace

extern const PanelEntry compare_panel = {"compare",
                                         "Predicted and measured",
                                         "where prediction and kernels part",
                                         Dock::lower_right,
                                         panel_of<CompareState, caption, draw, figures>,
                                         false,
                                         false};

}  // namespace app::gui
