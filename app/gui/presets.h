// What the pickers offer.
#pragma once
#include <string>
#include <vector>

#include "sim/scenario/preset.h"

namespace app::gui {

// Models: presets, then the pretrained ones that are on this machine. Hardware: "this-machine" first. Read
// once.
const std::vector<std::string>& preset_choices(sim::PresetKind kind);

// A model by any of those names. Throws as its file does.
sim::Model load_model_choice(const std::string& name);

}  // namespace app::gui
