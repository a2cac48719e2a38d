#include "app/gui/palette_window.h"

#include <misc/cpp/imgui_stdlib.h>

#include <algorithm>
#include <utility>

#include "app/gui/typed_flags.h"
#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

constexpr const char* kPalette = "##palette";
constexpr const char* kSheet = "Shortcuts";
constexpr double kToastSeconds = 3;

struct PaletteLine {
  const Command* command;
  std::string value;  // typed behind its words
};

std::vector<PaletteLine> lines_of(const Commands& commands, const std::string& query) {
  std::vector<PaletteLine> lines;
  if (const Command* flags = commands.find(kFlagsCommand); flags && is_flags(query)) return {{flags, query}};
  for (const Command* command : commands.search(query)) lines.push_back({command, ""});
  for (const Command* command : commands.taking(query))
    lines.push_back({command, query.substr(query.find_last_of(' ') + 1)});
  return lines;
}

void draw_palette_line(const Look& look, const PaletteLine& line_of, bool chosen, bool& picked) {
  const Command& command = *line_of.command;
  const Palette& c = look.color();
  const bool enabled = is_enabled(command);
  const float line = ImGui::GetFrameHeight();
  ImGui::PushID((command.id + line_of.value).c_str());
  const ImVec2 least = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  picked = ImGui::Selectable("##line", chosen, 0, {0, line}) && enabled;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float middle = least.y + line / 2;
  float right = least.x + width - look.px(4);
  const std::string keys = shortcut_text(command.shortcut);
  draw_text(list, look, TextRole::number, {right, middle}, c.dim, keys, {1, 0.5f});
  right -= text_size_of(look, TextRole::number, keys).x + look.px(keys.empty() ? 0 : 14);
  const std::string detail = command.detail ? command.detail() : "";
  const ImU32 color = enabled ? c.text : c.mute;
  std::string label = command.category + ": " + command.label;
  if (!line_of.value.empty()) label += " " + line_of.value;
  const float label_width = text_size_of(look, TextRole::body, label).x;
  draw_text(list, look, TextRole::body, {least.x + look.px(8), middle}, color, label, {0, 0.5f});
  const float free = right - least.x - label_width - look.px(30);
  if (free > look.px(20))
    draw_text(list, look, TextRole::caption, {right, middle}, c.mute,
              fitted(look, TextRole::caption, detail, free), {1, 0.5f});
  ImGui::PopID();
}

}  // namespace

void draw_palette(const Look& look, const Commands& commands, View& view, Requests& requests) {
  if (std::exchange(view.palette_asked, false)) {
    ImGui::OpenPopup(kPalette);
    view.palette_query.clear();
    view.palette_index = 0;
  }
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  const float width = std::min(look.px(620), viewport->Size.x - look.px(40));
  ImGui::SetNextWindowPos({viewport->Pos.x + (viewport->Size.x - width) / 2, viewport->Pos.y + look.px(72)});
  ImGui::SetNextWindowSize({width, std::min(look.px(430), viewport->Size.y - look.px(110))});
  if (!ImGui::BeginPopup(kPalette)) return;
  // The query has the keyboard and would take the first Escape for itself.
  if (ImGui::IsKeyPressed(ImGuiKey_Escape)) ImGui::CloseCurrentPopup();
  if (ImGui::IsWindowAppearing()) ImGui::SetKeyboardFocusHere();
  ImGui::SetNextItemWidth(-FLT_MIN);
  if (ImGui::InputTextWithHint("##query",
                               "A command, a model, a panel, a field and its value, or flags: --dp 8",
                               &view.palette_query))
    view.palette_index = 0;
  const std::vector<PaletteLine> found = lines_of(commands, view.palette_query);
  const int last = static_cast<int>(found.size()) - 1;
  int& index = view.palette_index;
  const bool moved = ImGui::IsKeyPressed(ImGuiKey_DownArrow) || ImGui::IsKeyPressed(ImGuiKey_UpArrow);
  if (ImGui::IsKeyPressed(ImGuiKey_DownArrow)) ++index;
  if (ImGui::IsKeyPressed(ImGuiKey_UpArrow)) --index;
  index = std::clamp(index, 0, std::max(0, last));

  const PaletteLine* picked = nullptr;
  if (ImGui::IsKeyPressed(ImGuiKey_Enter) && last >= 0) picked = &found[static_cast<std::size_t>(index)];
  ImGui::BeginChild("lines");
  if (found.empty()) text(look, TextRole::body, look.color().mute, "No command has all these words.");
  for (int i = 0; i <= last; ++i) {
    bool clicked = false;
    draw_palette_line(look, found[static_cast<std::size_t>(i)], i == index, clicked);
    if (clicked) picked = &found[static_cast<std::size_t>(i)];
    if (moved && i == index) ImGui::SetScrollHereY();
  }
  ImGui::EndChild();
  if (picked) {
    requests.commands.push_back(picked->command->id + (picked->value.empty() ? "" : "=" + picked->value));
    ImGui::CloseCurrentPopup();
  }
  ImGui::EndPopup();
}

void draw_shortcut_sheet(const Look& look, const Commands& commands, View& view) {
  if (std::exchange(view.shortcuts_asked, false)) ImGui::OpenPopup(kSheet);
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  ImGui::SetNextWindowPos({viewport->Pos.x + viewport->Size.x / 2, viewport->Pos.y + viewport->Size.y / 2}, 0,
                          {0.5f, 0.5f});
  ImGui::SetNextWindowSizeConstraints({0, 0}, {FLT_MAX, viewport->Size.y - look.px(20)});
  if (!ImGui::BeginPopup(kSheet, ImGuiWindowFlags_AlwaysAutoResize)) return;
  if (ImGui::IsKeyPressed(ImGuiKey_Escape)) ImGui::CloseCurrentPopup();
  text(look, TextRole::heading, look.color().text, kSheet);
  ImGui::Spacing();
  if (ImGui::BeginTable("shortcuts", 3, ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_BordersInnerH)) {
    for (const Command& command : commands.all()) {
      if (command.shortcut == ImGuiKey_None) continue;
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      text(look, TextRole::number, look.color().text, shortcut_text(command.shortcut));
      ImGui::TableNextColumn();
      text(look, TextRole::body, look.color().mute, command.category);
      ImGui::TableNextColumn();
      text(look, TextRole::body, look.color().text, command.label);
    }
    ImGui::EndTable();
  }
  ImGui::EndPopup();
}

void Toast::say(std::string words) {
  words_ = std::move(words);
  until_ = ImGui::GetTime() + kToastSeconds;
}

std::optional<double> Toast::changes_in() const {
  const double left = until_ - ImGui::GetTime();
  return left > 0 ? std::optional(left) : std::nullopt;
}

std::string_view Toast::words() const {
  return changes_in() ? std::string_view(words_) : "";
}

}  // namespace app::gui
