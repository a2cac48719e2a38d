#include "app/gui/panels/panels.h"

#include <array>

namespace app::gui {

// clang-format off
extern const PanelEntry scenario_panel, overview_panel, memory_panel, roofline_panel, live_panel, compare_panel,
    explain_panel, pipeline_panel, communication_panel, validation_panel, inference_panel, economics_panel,
    planner_panel, sweep_panel, lessons_panel, pins_panel, why_panel, calibrate_panel, methodology_panel;
// clang-format on

std::span<const PanelEntry* const> panels() {
  // In the order of the keys 1 to 9 and 0, and of tabs.
  static constexpr std::array all = {
      &scenario_panel,  &overview_panel,  &memory_panel,   &roofline_panel,      &live_panel,
      &compare_panel,   &explain_panel,   &pipeline_panel, &communication_panel, &validation_panel,
      &inference_panel, &economics_panel, &planner_panel,  &sweep_panel,         &lessons_panel,
      &pins_panel,      &why_panel,       &calibrate_panel,
      &methodology_panel};
  return all;
}

const PanelEntry* find_panel(std::string_view id) {
  for (const PanelEntry* panel : panels())
    if (id == panel->id) return panel;
  return nullptr;
}

std::string window_name(const PanelEntry& panel) {
  return std::string(panel.title) + "###" + panel.id;
}

}  // namespace app::gui
