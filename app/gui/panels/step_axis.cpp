#include "app/gui/panels/step_axis.h"

#include <implot.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "app/gui/widgets/plot.h"

namespace app::gui {

Frame frame_of_plot(int rows) {
  const ImPlotRect limits = ImPlot::GetPlotLimits();
  const ImVec2 least = ImPlot::GetPlotPos(), size = ImPlot::GetPlotSize();
  return {limits.X.Min, limits.X.Max, least.x, least.x + size.x, least.y, size.y / static_cast<float>(rows)};
}

void set_up_time(PipelineState& scope, const ScaleUnit& unit, bool labelled) {
  const ImPlotAxisFlags flags =
      ImPlotAxisFlags_NoHighlight | (labelled ? 0 : ImPlotAxisFlags_NoTickLabels | ImPlotAxisFlags_NoLabel);
  const std::string label = std::string("time in a step, ") + unit.name;
  ImPlot::SetupAxis(ImAxis_X1, labelled ? label.c_str() : nullptr, flags);
  ImPlot::SetupAxisLinks(ImAxis_X1, &scope.begin, &scope.end);
  ImPlot::SetupAxisLimitsConstraints(ImAxis_X1, 0, scope.duration);
  ImPlot::SetupAxisZoomConstraints(ImAxis_X1, scope.duration * 1e-5, scope.duration);
  label_axis(ImAxis_X1, unit);
}

void take_hand(PipelineState& scope) {
  if (!ImPlot::IsPlotHovered()) return;
  scope.cursor = std::clamp(ImPlot::GetPlotMousePos().x, 0.0, scope.duration);
}

void draw_cursor(const Look& look, const Frame& frame, double cursor, float bottom) {
  const float x = std::floor(frame.x(cursor));
  if (x < frame.left || x > frame.right) return;
  ImPlot::GetPlotDrawList()->AddRectFilled(
      {x, frame.top}, {x + std::max(1.0f, std::floor(look.scale)), bottom}, look.color().text);
}

}  // namespace app::gui
