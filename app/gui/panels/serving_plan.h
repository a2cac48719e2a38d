// The planner's panel where the task is generation: ways to serve the model.
#pragma once
#include "app/gui/view.h"

namespace app::gui {

void draw_serving_plan(const PanelContext& context);

}  // namespace app::gui
