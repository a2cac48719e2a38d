// Ways from a scenario that cannot be to one that can.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/document.h"
#include "sim/plan/legality.h"
#include "sim/scenario/scenario.h"

namespace app::gui {

// What differs, by the labels of Configure: "devices 1 -> 64, batch 8 -> 512". Presets by name. Empty where
// nothing that has a label does.
std::string differences(const sim::Scenario& from, const sim::Scenario& to);

// A problem in the words of Configure: "batch is 8, which is no multiple of micro-batch times data, 512".
std::string in_labels(const sim::Problem& problem);
std::string in_labels(std::string_view sentence);

// The edit, and with it the batch where that is the one thing against it: as many micro-batches a replica as
// before, or the fewest more that its schedule asks for. A batch that the edit sets stays as it is.
sim::Scenario with_batch_following(const sim::Scenario& before, sim::Scenario next);

// What is wrong with it. What this machine has not been measured of yet is not: measuring it is offered
// instead.
std::vector<sim::Problem> problems_of(const sim::Scenario& scenario);

// The edit, and where it asks for generation of what was trained, without the divisions that training alone
// has.
sim::Scenario with_division_following(const sim::Scenario& before, sim::Scenario next);

// The edit, and where it changes the task back, what the change to the other task had taken away: each field
// that was left alone since. `undo`: how `before` came to be.
sim::Scenario with_taken_fields_back(const sim::Scenario& before, const sim::Scenario& next,
                                     const std::vector<UndoStep>& undo);

// A legal scenario, found field by field from what is wrong; empty where the search finds none.
std::optional<sim::Scenario> make_legal(const sim::Scenario& scenario);

}  // namespace app::gui
