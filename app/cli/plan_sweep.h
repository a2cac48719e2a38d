// The file of a sweep: a list of values for each flag that varies; every combination is searched.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "app/cli/scenario_flags.h"

namespace app::cli {

// Flags' names without dashes ("seq-len"), each with the value that this variation gives it.
using Variation = std::vector<std::pair<std::string, std::string>>;

// "seq-len 8k, gpus 64"; empty without variation.
std::string text_of(const Variation& variation);

// In the order of the file, the last field fastest. Throws runtime::InputError naming file and field.
std::vector<Variation> read_sweep(const std::string& path);

// Throws UsageError for a value that the flag would not take.
void apply(const Variation& variation, ScenarioFlags& flags);

// For `ridgepoint schema`: an example of what read_sweep() reads, and what each field is.
std::string sweep_schema();

}  // namespace app::cli
