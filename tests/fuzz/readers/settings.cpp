// What the desktop remembers: read or replaced by defaults, never an obstacle.
// Read by: app/gui/settings.cpp
#include "app/gui/settings.h"

#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  app::gui::Settings settings;
  settings.layout = "[Window][Overview]\nPos=0,0\n";
  settings.closed_panels = {"memory"};
  const sim::Scenario scenario =
      sim::load_scenario_preset(sim::preset_names(sim::PresetKind::scenario).front());
  settings.tabs = {
      {.scenario = scenario, .history = {{{"layers", scenario}}, {}}, .pins = {{'B', scenario}}}};
  app::gui::save_settings(settings, folder());
  return {content(folder() / "desktop.json")};
}

void fuzz::read(std::string_view input) {
  fuzz::file("desktop.json", input);
  const app::gui::Settings settings = app::gui::load_settings(folder());
  const std::filesystem::path kept = folder() / "desktop.json.set-aside";
  require(content(std::filesystem::exists(kept) ? kept : folder() / "desktop.json") == input,
          "what the window cannot read is kept");
  std::filesystem::remove(kept);
  require(settings.scale >= app::gui::kLeastScale && settings.scale <= app::gui::kGreatestScale,
          "the interface has a scale that can be read");
}
