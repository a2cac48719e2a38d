// The roofline panel's state, for tests.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/panels/panels.h"
#include "sim/scenario/hardware.h"
#include "sim/scenario/memory_levels.h"

namespace app::gui {

struct RooflineFrame {
  double x_low, x_high, y_low, y_high;
  bool operator==(const RooflineFrame&) const = default;
};

// A device with the memories that it has roofs of.
struct RooflineDevice {
  sim::Hardware hardware;
  std::vector<sim::MemoryLevel> levels;
};

// The axes follow the scenario until the user zooms or drags; a double click, and a roof that leaves the
// picture, give them back.
struct RooflineState {
  explicit RooflineState(const PanelTools& tools);
  Calibrations& calibrations;
  Study<PredictionQuestion, Prediction>& beside;  // the scenario on the second device
  std::optional<RooflineFrame> fitted;            // that the axes were set to last
  bool zoomed = false;                            // by the user, since
  bool shows_levels = true;                       // roofs of caches and of the link to the host
  std::string second;  // hardware that is drawn beside the scenario's, by its preset; empty: none
  RooflineDevice first_device = {}, second_device = {};  // as they were read last
};

}  // namespace app::gui
