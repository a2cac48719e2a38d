#include "app/gui/settings_window.h"

#include <imgui_internal.h>
#include <misc/cpp/imgui_stdlib.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "app/gui/desktop.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/text.h"
#include "sim/byte_units.h"
#include "sim/format.h"

namespace app::gui {
namespace {

constexpr const char* kTitle = "Settings";
constexpr std::array<std::string_view, 2> kPages = {"Look", "Keys"};
constexpr const char* kAsking = "press a key";

std::string names_of(const std::vector<const Command*>& commands) {
  std::string names;
  for (const Command* command : commands)
    names += (names.empty() ? "" : ", ") + command->category + ": " + command->label;
  return names;
}

}  // namespace

void SettingsWindow::draw(const Look& look, float scale, Commands& commands, View& view, Requests& requests) {
  if (std::exchange(view.settings_asked, false)) ImGui::OpenPopup(kTitle);
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  const ImVec2 size = {std::min(look.px(720), viewport->Size.x - look.px(40)),
                       std::min(look.px(560), viewport->Size.y - look.px(40))};
  ImGui::SetNextWindowPos({viewport->Pos.x + viewport->Size.x / 2, viewport->Pos.y + viewport->Size.y / 2}, 0,
                          {0.5f, 0.5f});
  ImGui::SetNextWindowSize(size);
  if (!ImGui::BeginPopup(kTitle)) {
    asking_.clear();
    wanted_.reset();
    return commands.hold_keys(false);
  }
  text(look, TextRole::heading, look.color().text, kTitle);
  ImGui::SameLine(0, look.px(20));
  if (const auto page = segmented(look, "page", page_, kPages)) page_ = *page;
  ImGui::Spacing();
  if (page_ == 0)
    draw_look(look, scale, view, requests);
  else
    draw_keys(look, commands);
  // Escape ends the question for a key, and then the settings.
  if (asking_.empty() && !ImGui::IsAnyItemActive() && ImGui::IsKeyPressed(ImGuiKey_Escape))
    ImGui::CloseCurrentPopup();
  listen(commands);
  ImGui::EndPopup();
}

void SettingsWindow::draw_look(const Look& look, float scale, const View& view, Requests& requests) const {
  form_heading(look, "theme");
  if (const auto theme = segmented(look, "theme", static_cast<std::size_t>(look.theme), kThemeNames))
    requests.commands.push_back("view.theme." + std::string(kThemeNames[*theme]));
  form_heading(look, "size of type and lines");
  if (ImGui::Button("Smaller")) requests.commands.emplace_back("view.smaller");
  ImGui::SameLine();
  if (ImGui::Button("Larger")) requests.commands.emplace_back("view.larger");
  ImGui::SameLine();
  if (ImGui::Button("Actual size")) requests.commands.emplace_back("view.actual_size");
  ImGui::SameLine();
  ImGui::AlignTextToFramePadding();
  text(look, TextRole::number, look.color().text, sim::format_percent(scale));
  form_heading(look, "memory is shown in");
  if (segmented(look, "bytes", static_cast<std::size_t>(sim::byte_units()), sim::words_of<sim::ByteUnits>()))
    requests.commands.emplace_back("view.bytes");
  ImGui::SameLine();
  ImGui::AlignTextToFramePadding();
  text(look, TextRole::caption, look.color().dim, sim::sentence(sim::byte_units()));
  form_heading(look, "motion");
  static constexpr std::array<std::string_view, 2> kMotion = {"pictures play", "reduced"};
  if (segmented(look, "motion", view.still ? 1 : 0, kMotion)) requests.commands.emplace_back("view.still");
  ImGui::SameLine();
  ImGui::AlignTextToFramePadding();
  text(look, TextRole::caption, look.color().dim, "reduced: a picture moves only where you drag it");
}

void SettingsWindow::draw_keys(const Look& look, Commands& commands) {
  const Palette& c = look.color();
  ImGui::SetNextItemWidth(look.px(300));
  ImGui::InputTextWithHint("##filter", "A command or a key", &filter_);
  ImGui::SameLine();
  ImGui::BeginDisabled(commands.own_keys().empty());
  if (ImGui::Button("All as shipped")) commands.take_own_keys({});
  ImGui::EndDisabled();
  text_fitted(look, TextRole::caption, c.dim,
              "Click a key, or press Enter on it, and press the new one. Backspace: no key. Esc: as it was.",
              ImGui::GetContentRegionAvail().x);
  draw_conflict(look, commands);
  std::vector<const Command*> shown;
  for (const Command& command : commands.all()) shown.push_back(&command);
  std::erase_if(shown, [&](const Command* command) {
    return !has_words(*command, filter_) && !has_words(shortcut_text(command->shortcut), filter_);
  });
  // Those with a key first, each as they stand in menus.
  std::stable_partition(shown.begin(), shown.end(),
                        [](const Command* command) { return command->shortcut != ImGuiKey_None; });
  if (shown.empty()) return text(look, TextRole::body, c.mute, "No command and no key has all these words.");
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_ScrollY | ImGuiTableFlags_SizingFixedFit;
  if (!ImGui::BeginTable("keys", 4, kFlags)) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableSetupColumn("menu", ImGuiTableColumnFlags_WidthFixed, look.px(104));
  ImGui::TableSetupColumn("command", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("key", ImGuiTableColumnFlags_WidthFixed, look.px(150));
  ImGui::TableSetupColumn("as shipped", ImGuiTableColumnFlags_WidthFixed, look.px(130));
  ImGui::TableHeadersRow();
  ImGuiListClipper rows;
  rows.Begin(static_cast<int>(shown.size()));
  while (rows.Step())
    for (int row = rows.DisplayStart; row < rows.DisplayEnd; ++row)
      draw_row(look, commands, *shown[static_cast<std::size_t>(row)]);
  ImGui::EndTable();
}

void SettingsWindow::draw_row(const Look& look, Commands& commands, const Command& command) {
  const Palette& c = look.color();
  const std::string id = command.id;
  ImGui::PushID(id.c_str());
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  ImGui::AlignTextToFramePadding();
  text_fitted(look, TextRole::body, c.dim, command.category, ImGui::GetContentRegionAvail().x);
  ImGui::TableNextColumn();
  ImGui::AlignTextToFramePadding();
  text_fitted(look, TextRole::body, c.text, command.label, ImGui::GetContentRegionAvail().x);
  ImGui::TableNextColumn();
  const bool asked = asking_ == id;
  const std::string key = asked ? kAsking : shortcut_text(command.shortcut);
  const auto others = commands.sharing(id, command.shortcut);
  const bool own = command.shortcut != command.shipped;
  ImGui::PushStyleColor(ImGuiCol_Text, asked            ? c.measured
                                       : others.empty() ? (own ? c.predicted : c.text)
                                                        : c.warn);
  if (ImGui::Button((key + "##key").c_str(), {ImGui::GetContentRegionAvail().x, 0})) {
    asking_ = id;
    wanted_.reset();
  }
  ImGui::PopStyleColor();
  if (!others.empty())
    ImGui::SetItemTooltip("Also %s: of these, what can be done then is done.", names_of(others).c_str());
  ImGui::TableNextColumn();
  if (own) {
    const std::string shipped = shortcut_text(command.shipped);
    if (ImGui::Button(((shipped.empty() ? "no key" : shipped) + "##shipped").c_str(),
                      {ImGui::GetContentRegionAvail().x, 0}))
      commands.bind_as_shipped(id);
  }
  ImGui::PopID();
}

void SettingsWindow::draw_conflict(const Look& look, Commands& commands) {
  if (!wanted_) return;
  const Command* command = commands.find(wanted_->id);
  const auto others = commands.sharing(wanted_->id, wanted_->chord);
  if (!command || others.empty()) return wanted_.reset();
  text_wrapped(look, TextRole::body, look.color().warn,
               shortcut_text(wanted_->chord) + " is the key of " + names_of(others) + ".");
  if (ImGui::Button(("Give it to " + command->label).c_str())) {
    std::vector<std::string> ids;
    for (const Command* other : others) ids.push_back(other->id);
    for (const std::string& id : ids) commands.bind(id, ImGuiKey_None);
    commands.bind(wanted_->id, wanted_->chord);
    return wanted_.reset();
  }
  ImGui::SameLine();
  if (ImGui::Button("Leave it")) wanted_.reset();
}

// While a key is asked for, it is no command's and no widget's.
void SettingsWindow::listen(Commands& commands) {
  commands.hold_keys(!asking_.empty());
  if (asking_.empty()) return;
  const ImGuiID listener = ImGui::GetID("##listener");
  const bool begun = GImGui->ActiveId == listener;
  if (!begun) ImGui::SetActiveID(listener, ImGui::GetCurrentWindow());
  ImGui::KeepAliveID(listener);
  ImGui::SetActiveIdUsingAllKeyboardKeys();
  // The key that asked is still down.
  if (!begun) return;
  const auto done = [&] {
    asking_.clear();
    ImGui::ClearActiveID();
  };
  if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) return done();
  const auto chord = pressed_chord();
  if (!chord) return;
  const std::string id = std::exchange(asking_, {});
  done();
  if (*chord == ImGuiKey_Escape) return;
  if (*chord == ImGuiKey_Backspace) return commands.bind(id, ImGuiKey_None);
  if (commands.sharing(id, *chord).empty()) return commands.bind(id, *chord);
  wanted_ = Wanted{id, *chord};
}

}  // namespace app::gui
