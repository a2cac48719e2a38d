// What opens beside Start: where the run is to be, in which type, and recordings to play instead.
#pragma once
#include "app/gui/view.h"

namespace app::gui {

// "run.on.cuda:0.bf16": the command that chooses a place.
std::string place_command(const std::string& device, sim::DType dtype);
// "Intel Xeon, 4 threads, fp32", "NVIDIA H200, bf16".
std::string place_text(const RunPlace& place);
// "CPU, fp32", "GPU 0, bf16": where room is scarce.
std::string short_place_text(const RunPlace& place);
RunPlace place_on(const runtime::MachineDevice& device, sim::DType dtype);

// A button with the place at hand, and the list that it opens; the same with an arrow alone.
void draw_place_picker(const PanelContext& context, float greatest_width);
void draw_place_arrow(const PanelContext& context, float width);

}  // namespace app::gui
