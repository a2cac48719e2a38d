// The time axis that plots of a training step share: zoom, pan and cursor are the same in all of them.
#pragma once
#include "app/gui/panels/pipeline.h"
#include "app/gui/theme.h"
#include "app/gui/widgets/numbers.h"

namespace app::gui {

// Where times and rows lie on screen.
struct Frame {
  double begin = 0, end = 1;  // seconds
  float left = 0, right = 1, top = 0, row = 1;
  float x(double seconds) const {
    return left + (right - left) * static_cast<float>((seconds - begin) / (end - begin));
  }
};
// The frame of the plot that was just begun, once its axes are locked.
Frame frame_of_plot(int rows);

void set_up_time(PipelineState& scope, const ScaleUnit& unit, bool labelled);
// The cursor follows the hand on any of the plots.
void take_hand(PipelineState& scope);
void draw_cursor(const Look& look, const Frame& frame, double cursor, float bottom);

}  // namespace app::gui
