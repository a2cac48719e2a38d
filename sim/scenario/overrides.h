// Sets single fields of a scenario by their paths in its file, where no flag exists: an edited shape, a
// number of the hardware, a fact of software.
#pragma once
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace sim {

struct Override {
  std::string path;   // "model.num_hidden_layers", "hardware.memory_gib"; "model" for all of it
  std::string value;  // JSON, or a word without its quotes; null: as if the file lacked the field
  bool operator==(const Override&) const = default;
};

// Applies the overrides in their order. Throws PresetError, as the file of a scenario with these fields
// would; the message names `said_by` in place of the file.
Scenario with_overrides(const Scenario& scenario, const std::vector<Override>& overrides,
                        const std::string& said_by);

// The override that sets all of a part, such as "model".
Override whole(const Scenario& scenario, const std::string& part);

// The overrides that turn `from` into `to`.
std::vector<Override> overrides(const Scenario& from, const Scenario& to);

}  // namespace sim
