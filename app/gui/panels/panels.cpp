#include "app/gui/panels/panels.h"

#include <array>

namespace app::gui {

std::span<const Panel> panels() {
  static constexpr std::array<Panel, 7> all = {{
      {"scenario", "Configure", "what is computed, on what", Dock::left, false, scenario_caption,
       draw_scenario},
      {"overview", "Overview", "the whole answer at a glance", Dock::top, true, overview_caption,
       draw_overview},
      {"memory", "Memory", "what fills the device, and when", Dock::centre_left, false, memory_caption,
       draw_memory},
      {"roofline", "Roofline", "what bounds each operation", Dock::centre_right, false, roofline_caption,
       draw_roofline},
      {"live", "Live run", "the same quantities, measured", Dock::centre_left, false, live_caption,
       draw_live},
      {"compare", "Predicted and measured", "where prediction and kernels part", Dock::centre_right, false,
       compare_caption, draw_compare},
      {"explain", "Explain", "where a number comes from", Dock::right, false, explain_caption, draw_explain},
  }};
  return all;
}

const Panel* find_panel(std::string_view id) {
  for (const Panel& panel : panels())
    if (id == panel.id) return &panel;
  return nullptr;
}

std::string window_name(const Panel& panel) {
  return std::string(panel.title) + "###" + panel.id;
}

}  // namespace app::gui
