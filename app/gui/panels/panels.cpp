#include "app/gui/panels/panels.h"

#include <array>

namespace app::gui {

std::span<const Panel> panels() {
  static constexpr std::array all = {
      Panel{"scenario", "Configure", "what is computed, on what", Dock::left, false, scenario_caption,
            draw_scenario},
      Panel{"overview", "Overview", "the whole answer at a glance", Dock::top, true, overview_caption,
            draw_overview},
      Panel{"memory", "Memory", "what fills the device, and when", Dock::upper_left, false, memory_caption,
            draw_memory},
      Panel{"roofline", "Roofline", "what bounds each operation", Dock::upper_right, false, roofline_caption,
            draw_roofline},
      Panel{"live", "Live run", "the same quantities, measured", Dock::lower_left, false, live_caption,
            draw_live},
      Panel{"compare", "Predicted and measured", "where prediction and kernels part", Dock::lower_right,
            false, compare_caption, draw_compare},
      Panel{"explain", "Explain", "where a number comes from", Dock::right, false, explain_caption,
            draw_explain},
      Panel{"pipeline", "Pipeline", "which stage runs what when, and what it holds", Dock::upper_left, false,
            pipeline_caption, draw_pipeline},
      Panel{"communication", "Communication", "what ranks exchange, and what of it stands in the way",
            Dock::upper_right, false, communication_caption, draw_communication},
      Panel{"validation", "Validation", "predictions beside what others measured", Dock::lower_right, false,
            validation_caption, draw_validation},
      Panel{"inference", "Inference", "what serving the model takes: latency, memory, traffic",
            Dock::lower_left, false, inference_caption, draw_inference},
      Panel{"economics", "Economics", "what it costs: days, money, energy, carbon", Dock::lower_left, false,
            economics_caption, draw_economics},
      Panel{"planner", "Planner", "every legal strategy, and which to take", Dock::upper_left, false,
            planner_caption, draw_planner},
  };
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
