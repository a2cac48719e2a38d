// Single fields of a scenario by their paths in its file, for what has no flag: an edited shape, a number of
// the hardware, a fact of software.
#pragma once
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace sim {

struct Override {
  std::string path;   // "model.num_hidden_layers", "hardware.memory_gib"; "model" for all of it
  std::string value;  // JSON, or a word without its quotes; null: as if the file did not say the field
  bool operator==(const Override&) const = default;
};

// In their order. Throws PresetError, as the file of a scenario with these fields would; `said_by` stands for
// its name.
Scenario with_overrides(const Scenario& scenario, const std::vector<Override>& overrides,
                        const std::string& said_by);

// All of a part: "model".
Override whole(const Scenario& scenario, const std::string& part);

// What makes `to` of `from`.
std::vector<Override> overrides(const Scenario& from, const Scenario& to);

}  // namespace sim
