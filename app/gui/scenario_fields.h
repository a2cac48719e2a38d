// What Configure offers: every row of the table of fields (sim/scenario/fields.h) that has a label, and the
// sizes of the model.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/widgets/fields.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/preset.h"
#include "sim/scenario/scenario.h"

namespace app::gui {

struct ScenarioField {
  std::string label;
  std::string name;                            // as validate() calls it: "strategy.tensor_parallel"
  std::vector<std::string_view> choices = {};  // empty: a number
  // The number, or the index of the choice; past the last where it is none of them.
  std::function<std::int64_t(const sim::Scenario&)> read = {};
  std::function<void(sim::Scenario&, std::int64_t)> write = {};
  std::function<Stepper(const sim::Scenario&)> stepper = {};   // of a number
  NumberStyle style = {};                                      // of a number
  bool several = false;                                        // any of the choices: bit i for the i-th
  bool rare = false;                                           // folded away while it is as it begins
  std::function<bool(const sim::Scenario&)> applies = {};      // none: always
  std::function<std::string(const sim::Scenario&)> says = {};  // below it, where nothing is wrong
  // Why write() could make nothing of a value, naming what would be accepted.
  std::function<std::string(const sim::Scenario&, std::int64_t)> refuses = {};

  // As it is written on screen: "1,024", "selective", "norm, activation".
  std::string text(std::int64_t value) const;
  // Whether the scenario's value differs from the field's default.
  bool is_set(const sim::Scenario& scenario) const;
};

struct FieldSection {
  const char* id;
  const char* title;
  // A preset of this kind comes first, picked by the command PREFIX.NAME; then what it says of itself.
  std::optional<sim::PresetKind> preset = {};
  std::string (*preset_name)(const sim::Scenario&) = nullptr;
  std::string (*preset_says)(const sim::Scenario&) = nullptr;
  std::vector<ScenarioField> fields = {};
};

const std::vector<FieldSection>& scenario_fields();

// A field and its value, as Configure writes them: "ZeRO 3", "seq. parallel on".
std::string said(const sim::AnyField& row, const sim::Scenario& scenario);

// Values of a field with which validate() has nothing against it, other fields as they are: at most `most`,
// nearest to what it is now, in ascending order.
std::vector<std::int64_t> accepted_values(const sim::Scenario& scenario, const ScenarioField& field,
                                          std::size_t most = 5);

// The scenario under another schedule, with the fewest chunks a stage that it needs; where it cannot be, why.
struct ScheduleChoice {
  std::optional<sim::Scenario> scenario;
  std::string refusal;
};
ScheduleChoice with_schedule(const sim::Scenario& scenario, std::string_view schedule);

}  // namespace app::gui
