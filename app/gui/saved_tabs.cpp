#include "app/gui/saved_tabs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/gui/pin_count.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

nlohmann::json to_json(const std::vector<UndoStep>& steps) {
  nlohmann::json json = nlohmann::json::array();
  const std::size_t kept = std::min(steps.size(), kKeptSteps);
  for (auto step = steps.end() - static_cast<std::ptrdiff_t>(kept); step != steps.end(); ++step)
    json.push_back(
        {{"label", step->label}, {"scenario", nlohmann::json::parse(sim::to_json(step->other_side))}});
  return json;
}

sim::Scenario scenario_at(const nlohmann::json& json, const char* key, const std::string& file) {
  return sim::scenario_from_json(json.at(key).dump(), file);
}

// What throws is left out.
template <class Read>
void try_to(std::string& problem, const Read& read) {
  try {
    read();
  } catch (const std::exception& error) {
    if (problem.empty()) problem = error.what();
  }
}

std::vector<UndoStep> steps_at(const nlohmann::json& json, const char* key, const std::string& file) {
  std::vector<UndoStep> steps;
  if (json.contains(key))
    for (const nlohmann::json& step : json.at(key))
      steps.push_back({step.at("label").get<std::string>(), scenario_at(step, "scenario", file)});
  return steps;
}

SavedPin pin_from_json(const nlohmann::json& json, const std::string& file) {
  SavedPin pin;
  const auto letter = json.at("letter").get<std::string>();
  if (letter.size() != 1 || letter[0] < 'A' || letter[0] >= 'A' + static_cast<int>(kPins))
    throw std::runtime_error(file + ": a pin's letter must be one of the first " + std::to_string(kPins) +
                             ", not \"" + letter + "\"");
  pin.letter = letter[0];
  if (json.contains("measured")) {
    pin.measured =
        std::make_shared<const sim::Report>(sim::report_from_json(json.at("measured").dump(), file));
    pin.scenario = pin.measured->source.scenario;
  } else {
    pin.scenario = scenario_at(json, "scenario", file);
  }
  return pin;
}

}  // namespace

nlohmann::json to_json(const SavedTab& tab) {
  nlohmann::json json = {{"scenario", nlohmann::json::parse(sim::to_json(tab.scenario))}};
  if (!tab.file.empty()) json["file"] = tab.file.string();
  if (!tab.history.undo.empty()) json["undo"] = to_json(tab.history.undo);
  if (!tab.history.redo.empty()) json["redo"] = to_json(tab.history.redo);
  for (const SavedPin& pin : tab.pins) {
    nlohmann::json one = {{"letter", std::string(1, pin.letter)}};
    if (pin.measured)
      one["measured"] = nlohmann::json::parse(sim::to_json(*pin.measured));
    else
      one["scenario"] = nlohmann::json::parse(sim::to_json(pin.scenario));
    json["pins"].push_back(std::move(one));
  }
  if (!tab.pins.empty()) json["baseline"] = tab.baseline;
  return json;
}

std::optional<SavedTab> tab_from_json(const nlohmann::json& json, const std::string& file,
                                      std::string& problem) {
  std::optional<SavedTab> tab;
  try_to(problem, [&] { tab = SavedTab{.scenario = scenario_at(json, "scenario", file)}; });
  if (!tab) return tab;
  try_to(problem, [&] {
    if (json.contains("file")) tab->file = json.at("file").get<std::string>();
  });
  // Half a history would lead to what never was.
  try_to(problem, [&] { tab->history = {steps_at(json, "undo", file), steps_at(json, "redo", file)}; });
  try_to(problem, [&] {
    if (!json.contains("pins")) return;
    for (const nlohmann::json& pin : json.at("pins"))
      try_to(problem, [&] { tab->pins.push_back(pin_from_json(pin, file)); });
    std::sort(tab->pins.begin(), tab->pins.end(),
              [](const SavedPin& a, const SavedPin& b) { return a.letter < b.letter; });
    const auto same = [](const SavedPin& a, const SavedPin& b) { return a.letter == b.letter; };
    tab->pins.erase(std::unique(tab->pins.begin(), tab->pins.end(), same), tab->pins.end());
    if (json.contains("baseline")) tab->baseline = json.at("baseline").get<std::size_t>();
    if (tab->baseline >= tab->pins.size()) tab->baseline = 0;
  });
  return tab;
}

}  // namespace app::gui
