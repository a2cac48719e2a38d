// Presets of every kind, as files of a folder of presets.
// Read by: sim/scenario/preset.cpp sim/json_object.cpp sim/economics/rates.cpp
// sim/economics/published_models.cpp
#include "sim/scenario/preset.h"

#include <cstdlib>

#include "sim/economics/published_models.h"
#include "sim/economics/rates.h"
#include "tests/fuzz/fuzz.h"

namespace {

template <class Read>
void as_preset(std::string_view input, const char* name, Read read) {
  const std::filesystem::path file = fuzz::file(name, input);
  try {
    read();
  } catch (const sim::PresetError& error) {
    fuzz::require(std::string(error.what()).find("fuzzed") != std::string::npos,
                  "a refusal names the preset");
  }
  std::filesystem::remove(file);
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all;
  for (const char* const kind :
       {"presets/models", "presets/hardware", "presets/implementations", "presets/workloads"}) {
    std::vector<std::string> files = files_of(kind, ".json");
    constexpr std::size_t kMost = 12;
    for (std::size_t i = 0; i < files.size(); i += files.size() / kMost + 1) all.push_back(files[i]);
  }
  all.push_back(R"({"source":"itself","extends":"fuzzed"})");
  return all;
}

void fuzz::read(std::string_view input) {
  setenv("RIDGEPOINT_PRESETS", folder().c_str(), 1);
  as_preset(input, "models/fuzzed.json", [] { sim::load_model_preset("fuzzed"); });
  as_preset(input, "hardware/fuzzed.json", [] { sim::load_hardware_preset("fuzzed"); });
  as_preset(input, "implementations/fuzzed.json", [] { sim::load_implementation_preset("fuzzed"); });
  as_preset(input, "workloads/fuzzed.json", [] { sim::load_workload_preset("fuzzed"); });
}
