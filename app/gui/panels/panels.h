// The panels: each a function of what is known and of what the user looks at. Adding one is a line in
// panels.cpp.
#pragma once
#include <span>
#include <string>

#include "app/gui/view.h"

namespace app::gui {

// Where there is no height for two rows in the middle, lower panels share tabs with the upper ones.
enum class Dock { left, top, upper_left, upper_right, lower_left, lower_right, right };

struct Panel {
  const char* id;     // stable: files, tests and the command line use it
  const char* title;  // a noun
  const char* teaches;
  Dock dock;
  bool bare;  // draws its own cards: no title row, no padding
  // Of what and in which unit, for the right end of the title row.
  std::string (*caption)(const PanelContext& context);
  void (*draw)(const PanelContext& context);
};

std::span<const Panel> panels();
const Panel* find_panel(std::string_view id);
// What ImGui knows its window by: the id stays when the title changes.
std::string window_name(const Panel& panel);

void draw_scenario(const PanelContext& context);
std::string scenario_caption(const PanelContext& context);
void draw_overview(const PanelContext& context);
std::string overview_caption(const PanelContext& context);
void draw_memory(const PanelContext& context);
std::string memory_caption(const PanelContext& context);
void draw_roofline(const PanelContext& context);
std::string roofline_caption(const PanelContext& context);
void draw_live(const PanelContext& context);
std::string live_caption(const PanelContext& context);
void draw_compare(const PanelContext& context);
std::string compare_caption(const PanelContext& context);
void draw_pipeline(const PanelContext& context);
std::string pipeline_caption(const PanelContext& context);
void draw_communication(const PanelContext& context);
std::string communication_caption(const PanelContext& context);
void draw_validation(const PanelContext& context);
std::string validation_caption(const PanelContext& context);
void draw_inference(const PanelContext& context);
std::string inference_caption(const PanelContext& context);
void draw_economics(const PanelContext& context);
std::string economics_caption(const PanelContext& context);
void draw_planner(const PanelContext& context);
std::string planner_caption(const PanelContext& context);
void draw_explain(const PanelContext& context);
std::string explain_caption(const PanelContext& context);

}  // namespace app::gui
