// What a session keeps of its tabs: scenarios, their histories, their pins.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/gui/document.h"
#include "sim/report/report.h"

namespace app::gui {

// A prediction is a function of its scenario and is made again; what was measured is kept whole.
struct SavedPin {
  char letter = 'A';
  sim::Scenario scenario;
  std::shared_ptr<const sim::Report> measured = nullptr;  // null: it was predicted
  bool operator==(const SavedPin&) const = default;
};

struct SavedTab {
  sim::Scenario scenario;
  History history = {};
  std::filesystem::path file = {};  // empty: none
  std::vector<SavedPin> pins = {};
  std::size_t baseline = 0;
  bool operator==(const SavedTab&) const = default;
};

// The number of a history's newest steps that are kept.
inline constexpr std::size_t kKeptSteps = 30;

nlohmann::json to_json(const SavedTab& tab);
// Leaves out what cannot be read; `problem` is then a sentence about the first such part. Without a scenario
// there is no tab.
std::optional<SavedTab> tab_from_json(const nlohmann::json& json, const std::string& file,
                                      std::string& problem);

}  // namespace app::gui
