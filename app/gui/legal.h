// Ways from a scenario that is not legal to a legal one.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/document.h"
#include "sim/plan/legality.h"
#include "sim/scenario/scenario.h"

namespace app::gui {

// The differences by the labels of Configure: "devices 1 -> 64, batch 8 -> 512". Presets by name. Empty where
// nothing with a label differs.
std::string differences(const sim::Scenario& from, const sim::Scenario& to);

// A problem in the words of Configure: "batch is 8, which is no multiple of micro-batch times data, 512".
std::string in_labels(const sim::Problem& problem);
std::string in_labels(std::string_view sentence);

// The edited scenario. Where the batch alone makes it illegal, the batch changes too: as many micro-batches a
// replica as before, or the fewest more that its schedule asks for. A batch that the edit sets stays.
sim::Scenario with_batch_following(const sim::Scenario& before, sim::Scenario next);

// The scenario's problems. What this machine has not been measured for yet is no problem: measuring is
// offered instead.
std::vector<sim::Problem> problems_of(const sim::Scenario& scenario);

// The edited scenario. Where the edit turns training into generation, it loses the divisions that only
// training has.
sim::Scenario with_division_following(const sim::Scenario& before, sim::Scenario next);

// The edited scenario. Where the edit changes the task back, it regains what the change to the other task
// took away: each field that was left alone since. `undo` is how `before` came to be.
sim::Scenario with_taken_fields_back(const sim::Scenario& before, const sim::Scenario& next,
                                     const std::vector<UndoStep>& undo);

// A legal scenario, found field by field from what is wrong; empty where the search finds none.
std::optional<sim::Scenario> make_legal(const sim::Scenario& scenario);

}  // namespace app::gui
