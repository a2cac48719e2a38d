#include "app/gui/presets.h"

#include <algorithm>
#include <map>

#include "runtime/model_source.h"

namespace app::gui {
namespace {

std::vector<std::string> read_choices(sim::PresetKind kind) {
  std::vector<std::string> names = sim::preset_names(kind);
  if (kind == sim::PresetKind::hardware) names.insert(names.begin(), "this-machine");
  if (kind == sim::PresetKind::model)
    for (const runtime::PretrainedModel& model : runtime::pretrained_models())
      if (model.present) names.push_back(model.name);
  return names;
}

}  // namespace

const std::vector<std::string>& preset_choices(sim::PresetKind kind) {
  static std::map<sim::PresetKind, std::vector<std::string>> known;
  auto found = known.find(kind);
  if (found == known.end()) found = known.emplace(kind, read_choices(kind)).first;
  return found->second;
}

sim::Model load_model_choice(const std::string& name) {
  const std::vector<std::string> presets = sim::preset_names(sim::PresetKind::model);
  const bool is_preset = std::find(presets.begin(), presets.end(), name) != presets.end();
  return is_preset ? sim::load_model_preset(name) : runtime::open_model(name).model;
}

}  // namespace app::gui
