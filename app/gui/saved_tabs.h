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

// So many of a history's newest steps are kept.
inline constexpr std::size_t kKeptSteps = 30;

nlohmann::json to_json(const SavedTab& tab);
// What of it cannot be read is left out, and `problem` then says why of the first: a sentence. Without a
// scenario there is no tab.
std::optional<SavedTab> tab_from_json(const nlohmann::json& json, const std::string& file,
                                      std::string& problem);

}  // namespace app::gui
