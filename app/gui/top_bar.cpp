// The top bar: what one is looking at, and the two things one does most.
#include <algorithm>
#include <array>
#include <cmath>

#include "app/gui/bars.h"
#include "app/gui/start_menu.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/text.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

// A roofline's corner, with its ridge point.
void draw_mark(const Look& look, ImVec2 begin) {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const auto at = [&](float x, float y) { return ImVec2(begin.x + look.px(x), begin.y + look.px(y)); };
  const ImVec2 points[] = {at(0, 17), at(12, 5), at(26, 5)};
  list->AddPolyline(points, 3, look.color().predicted, look.px(2.6f));
  list->AddCircleFilled(points[1], look.px(4.2f), look.color().measured);
}

void preset_picker(const Look& look, const Commands& commands, Requests& requests, const char* prefix,
                   const std::string& current, float width) {
  if (!begin_picker(look, prefix, current, width)) return;
  const std::string ids = std::string(prefix) + ".";
  for (const Command& command : commands.all())
    if (command.id.compare(0, ids.size(), ids) == 0 &&
        ImGui::Selectable(command.label.c_str(), command.label == current))
      requests.commands.push_back(command.id);
  end_picker();
}

void dtype_picker(const Look& look, const PanelContext& context, float width) {
  const sim::Scenario& scenario = context.scenario;
  if (!begin_picker(look, "dtype", sim::name(scenario.workload.dtype), width)) return;
  for (const sim::DType dtype : {sim::DType::fp32, sim::DType::tf32, sim::DType::bf16, sim::DType::fp16}) {
    const std::string name(sim::name(dtype));
    const bool available = scenario.hardware.peak.empty() || scenario.hardware.peak.count(dtype);
    ImGui::BeginDisabled(!available);
    if (ImGui::Selectable(name.c_str(), dtype == scenario.workload.dtype)) {
      sim::Scenario next = scenario;
      next.workload.dtype = dtype;
      context.edit("dtype " + std::string(sim::name(scenario.workload.dtype)) + " \u2192 " + name, next);
    }
    ImGui::EndDisabled();
  }
  end_picker();
}

void right_aligned_group(float& right, float width, float gap, float y) {
  right -= width;
  ImGui::SetCursorPos({right, y});
  right -= gap;
}

void draw_menu(Commands& commands) {
  if (!ImGui::BeginPopup("menu")) return;
  std::string invoked;
  for (const std::string& category : commands.categories()) {
    if (!ImGui::BeginMenu(category.c_str())) continue;
    for (const Command& command : commands.all()) {
      if (!command.in_menu || command.category != category) continue;
      if (ImGui::MenuItem(command.label.c_str(), shortcut_text(command.shortcut).c_str(), false,
                          is_enabled(command)))
        invoked = command.id;
    }
    ImGui::EndMenu();
  }
  ImGui::EndPopup();
  if (!invoked.empty()) commands.invoke(invoked);
}

}  // namespace

void draw_top_bar(const PanelContext& context, Commands& commands) {
  const Look& look = context.look;
  const float height = std::floor(look.px(kTopBarHeight));
  const float width = ImGui::GetWindowSize().x;
  const ImVec2 begin = ImGui::GetWindowPos();
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(begin, {begin.x + width, begin.y + height}, look.color().panel);
  list->AddRectFilled({begin.x, begin.y + height - std::max(1.0f, std::floor(look.scale))},
                      {begin.x + width, begin.y + height}, look.color().border);
  const float y = std::floor((height - ImGui::GetFrameHeight()) / 2);
  const float gap = look.px(8);

  draw_mark(look, {begin.x + look.px(16), begin.y + height / 2 - look.px(11)});
  draw_text(list, look, TextRole::title, {begin.x + look.px(54), begin.y + height / 2}, look.color().text,
            "Ridgepoint", {0, 0.5f});

  // From the right, so that what is done most never leaves the window.
  float right = width - look.px(12);
  const float side = ImGui::GetFrameHeight();
  right_aligned_group(right, side + look.px(4), gap, y);
  if (ImGui::Button("##menu", {side + look.px(4), side})) ImGui::OpenPopup("menu");
  const ImVec2 middle = {(ImGui::GetItemRectMin().x + ImGui::GetItemRectMax().x) / 2,
                         (ImGui::GetItemRectMin().y + ImGui::GetItemRectMax().y) / 2};
  for (const float offset : {-4.0f, 0.0f, 4.0f})
    list->AddRectFilled({middle.x - look.px(6), std::floor(middle.y + look.px(offset - 0.75f))},
                        {middle.x + look.px(6), std::floor(middle.y + look.px(offset + 0.75f))},
                        look.color().dim);
  draw_menu(commands);

  const char* search = "Search";
  const float search_width = look.px(128);
  right_aligned_group(right, search_width, gap, y);
  if (ImGui::Button("##search", {search_width, side})) context.invoke("view.palette");
  const ImVec2 least = ImGui::GetItemRectMin(), most = ImGui::GetItemRectMax();
  draw_text(list, look, TextRole::body, {least.x + look.px(10), (least.y + most.y) / 2}, look.color().dim,
            search, {0, 0.5f});
  draw_text(list, look, TextRole::number, {most.x - look.px(8), (least.y + most.y) / 2}, look.color().mute,
            shortcut_text(commands.find("view.palette")->shortcut), {1, 0.5f});

  const bool active = context.runs.active();
  const char* run_label = active ? "Stop" : "Start";
  const float arrow_width = look.px(26);
  if (!active) {
    right_aligned_group(right, arrow_width, std::floor(look.px(2)), y);
    draw_place_arrow(context, arrow_width);
    ImGui::SetItemTooltip("Where to run, and recordings to play");
  }
  right_aligned_group(right, look.px(72), gap, y);
  const std::string refusal = !active && context.outlook ? context.outlook->refusal : "";
  ImGui::BeginDisabled(!refusal.empty());
  if (primary_button(look, run_label, active ? look.color().bad : look.color().good, {look.px(72), side}))
    context.invoke(active ? "run.stop" : "run.start");
  ImGui::EndDisabled();
  if (!refusal.empty() && ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled))
    ImGui::SetTooltip("%s", refusal.c_str());
  if (refusal.empty())
    ImGui::SetItemTooltip("%s on %s (%s)", active ? "Stop the run" : "Run the scenario for real",
                          place_text(context.runs.choices.place).c_str(),
                          shortcut_text(commands.find(active ? "run.stop" : "run.start")->shortcut).c_str());

  // Pickers share what is left, the most telling first.
  const sim::Scenario& scenario = context.scenario;
  ImGui::SetCursorPos({look.px(146), y});
  const auto room = [&] { return right - ImGui::GetCursorPosX(); };
  Requests& requests = context.requests;
  preset_picker(look, commands, requests, "model", scenario.model.name, std::min(look.px(190), room()));
  ImGui::SameLine(0, gap);
  preset_picker(look, commands, requests, "hardware", scenario.hardware.name, std::min(look.px(190), room()));
  ImGui::SameLine(0, gap);
  if (room() > look.px(60)) dtype_picker(look, context, look.px(90));
  ImGui::SameLine(0, gap);
  static constexpr std::array<std::string_view, 2> tasks = {"Train", "Generate"};
  if (room() > look.px(160)) {
    const auto current = static_cast<std::size_t>(scenario.workload.task);
    if (const auto chosen = segmented(look, "task", current, tasks)) {
      sim::Scenario next = scenario;
      next.workload.task = static_cast<sim::Task>(*chosen);
      context.edit("task " + std::string(tasks[current]) + " \u2192 " + std::string(tasks[*chosen]), next);
    }
    ImGui::SameLine(0, gap);
  }
  if (room() > look.px(150))
    preset_picker(look, commands, requests, "implementation", scenario.implementation.name,
                  std::min(look.px(190), room()));
}

}  // namespace app::gui
