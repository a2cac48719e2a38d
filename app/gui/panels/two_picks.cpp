#include "app/gui/panels/two_picks.h"

#include <algorithm>
#include <cmath>

#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"

namespace app::gui {

void toggle_pick(Picks& picks, std::int64_t candidate) {
  if (picks[1] == candidate) return picks[1].reset();
  if (picks[0] == candidate) {
    picks[0] = picks[1];
    return picks[1].reset();
  }
  picks[picks[0] ? 1 : 0] = candidate;
}

ImU32 pick_color(const Look& look, std::size_t pick) {
  return look.color().pins[static_cast<std::size_t>(pick)];
}

void picks_title(const Look& look, const Picks& picks) {
  chart_title(look, "Two compared",
              picks[1]   ? ""
              : picks[0] ? "the pick and the best"
                         : "the best two; a click on others picks them");
}

std::vector<std::size_t> columns_that_fit(std::span<const float> widths, std::size_t first, float room) {
  std::vector<std::size_t> fitting;
  if (first < widths.size()) {
    fitting.push_back(first);
    room -= widths[first];
  }
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (i == first) continue;
    if (widths[i] > room) break;
    fitting.push_back(i);
    room -= widths[i];
  }
  std::sort(fitting.begin(), fitting.end());
  return fitting;
}

namespace {

// Begins a row with the mark of a pick and the candidate's words.
void candidate_row(const Look& look, Picks& picks, std::int64_t candidate, std::string_view words) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  ImGui::PushID(static_cast<int>(candidate ^ (candidate >> 31)));
  const ImVec2 at = ImGui::GetCursorPos();
  const bool a = picks[0] == candidate, b = picks[1] == candidate;
  const float line = text_size_of(look, TextRole::body, "x").y;
  if (ImGui::Selectable("##row", a || b, ImGuiSelectableFlags_SpanAllColumns, {0, line}))
    toggle_pick(picks, candidate);
  ImGui::PopID();
  ImGui::SetCursorPos(at);
  text(look, TextRole::body, pick_color(look, a ? 0 : 1), a ? "A" : b ? "B" : "");
  ImGui::TableNextColumn();
  text_fitted(look, TextRole::caption, look.color().text, words, ImGui::GetContentRegionAvail().x);
}

}  // namespace

void draw_candidate_table(const Look& look, Picks& picks, const CandidateTable& table, ImVec2 size) {
  constexpr ImGuiTableFlags flags =
      ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_PadOuterX;
  const ImGuiStyle& style = ImGui::GetStyle();
  const float padding = 2 * style.CellPadding.x, mark = look.px(12);
  std::vector<float> widths;
  for (const CandidateTable::Column& column : table.columns)
    widths.push_back(look.px(column.width) + padding);
  const std::vector<std::size_t> shown =
      columns_that_fit(widths, table.ranked_by,
                       size.x - style.ScrollbarSize - mark - look.px(table.words_width) - 2 * padding);

  if (!ImGui::BeginTable("best", static_cast<int>(shown.size()) + 2, flags, size)) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableSetupColumn("", ImGuiTableColumnFlags_WidthFixed, mark);
  ImGui::TableSetupColumn("words", ImGuiTableColumnFlags_WidthStretch);
  for (const std::size_t column : shown)
    ImGui::TableSetupColumn("", ImGuiTableColumnFlags_WidthFixed, look.px(table.columns[column].width));
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  ImGui::TableNextColumn();
  ImGui::TableNextColumn();
  text(look, TextRole::caption, look.color().dim, table.heading);
  for (const std::size_t column : shown) {
    ImGui::TableNextColumn();
    text_right(look, TextRole::caption, look.color().dim, table.columns[column].heading);
  }
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(table.rows));
  while (clipper.Step())
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const auto row = static_cast<std::size_t>(i);
      candidate_row(look, picks, table.candidate(row), table.words(row));
      for (const std::size_t column : shown) {
        ImGui::TableNextColumn();
        text_right(look, TextRole::number, look.color().predicted, table.columns[column].text(row));
      }
    }
  ImGui::EndTable();
}

bool apply_row(const Look& look, std::size_t pick, const std::string& words, float width) {
  ImGui::PushID(static_cast<int>(pick));
  const float button = look.px(64);
  ImGui::AlignTextToFramePadding();
  text(look, TextRole::title, pick_color(look, pick), pick == 0 ? "A" : "B");
  ImGui::SameLine(0, look.px(8));
  ImGui::AlignTextToFramePadding();
  ImGui::BeginGroup();  // of several lines where it is narrow
  ImGui::PushTextWrapPos(width - button - look.px(8));
  text(look, TextRole::caption, look.color().text, words);
  ImGui::PopTextWrapPos();
  ImGui::EndGroup();
  ImGui::SameLine(width - button);
  const bool pressed = ImGui::Button("Apply", {button, 0});
  ImGui::PopID();
  return pressed;
}

void time_bars(const Look& look, std::string_view part, std::span<const sim::Seconds> of_picks,
               sim::Seconds most, float width, BarsStyle style) {
  const float numbers = look.px(64);
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  draw_text(list, look, TextRole::caption, {at.x, at.y + style.line / 2}, look.color().text,
            fitted(look, TextRole::caption, part, style.names - look.px(6)), {0, 0.5f});
  for (std::size_t i = 0; i < of_picks.size(); ++i) {
    const float top = at.y + style.top + look.px(12) * static_cast<float>(i);
    const float bar = (width - style.names - numbers) * static_cast<float>(of_picks[i].value / most.value);
    list->AddRectFilled({at.x + style.names, top},
                        {at.x + style.names + std::max(1.0f, bar), top + look.px(10)},
                        with_alpha(pick_color(look, i), 0.75f), look.px(2));
    draw_text(list, look, TextRole::number, {at.x + width, top + look.px(5)}, pick_color(look, i),
              sim::format(of_picks[i]), {1, 0.5f});
  }
  ImGui::Dummy({width, style.line});
}

void draw_planner_parts(const Look& look, int& tab, const PlannerLayout& layout) {
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float gap = look.px(16);
  const auto cell = [](const char* id, ImVec2 size, const PlannerLayout::Part& part) {
    ImGui::BeginChild(id, size);
    part(ImGui::GetContentRegionAvail());
    ImGui::EndChild();
  };
  const auto hint = [&](ImVec2) { layout.hint(); };
  if (room.x >= look.px(1000) && room.y >= look.px(520)) {
    const float left = look.px(290), width = room.x - left - gap;
    cell("controls", {left, room.y}, layout.controls);
    ImGui::SameLine(0, gap);
    ImGui::BeginGroup();
    if (!layout.any) {
      cell("hint", {width, room.y}, hint);
    } else {
      const float table = std::floor((width - gap) * 0.6f);
      cell("scatter", {width, std::floor(room.y * layout.scatter_share)}, layout.scatter);
      ImGui::Dummy({0, look.px(2)});
      const float lower = ImGui::GetContentRegionAvail().y;
      cell("best", {table, lower}, layout.best);
      ImGui::SameLine(0, gap);
      cell("compared", {width - table - gap, lower}, layout.compared);
    }
    ImGui::EndGroup();
    return;
  }
  const std::array<std::string_view, 4> tabs = {layout.first_tab, "scatter", "best", "two picks"};
  if (const auto picked = segmented(look, "tab", static_cast<std::size_t>(tab), tabs))
    tab = static_cast<int>(*picked);
  const std::array<const PlannerLayout::Part*, 4> parts = {&layout.controls, &layout.scatter, &layout.best,
                                                           &layout.compared};
  const bool hints = tab > 0 && !layout.any;
  cell("part", ImGui::GetContentRegionAvail(),
       hints ? PlannerLayout::Part(hint) : *parts[static_cast<std::size_t>(tab)]);
}

}  // namespace app::gui
