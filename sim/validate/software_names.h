// Finds the implementation presets for the software that a table names, as old as its row:
// presets/software.json.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sim {

struct NamedSoftware {
  // The first gives the estimate; the others are further ways in which such runs were carried out.
  std::vector<std::string> presets;
  bool nearest = false;  // no preset is of this software; this is the one most like it
};

// `framework` is free text, with a version or without; `date` begins with the year ("2024-12").
NamedSoftware training_software(std::string_view framework, std::string_view date);
NamedSoftware serving_software(std::string_view framework, std::string_view date);

}  // namespace sim
