// Presets are data with sources, presets/<kind>/<name>.json. Unknown keys are refused.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/preset_error.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/scenario_series.h"

namespace sim {

// Hardware that runtime/ measures; it has no preset.
inline constexpr std::string_view kThisMachine = "this-machine";

enum class PresetKind { model, hardware, implementation, workload, scenario, series };

// The folder of presets: the environment's RIDGEPOINT_PRESETS, else beside the installed program, else in the
// source tree.
std::filesystem::path preset_directory();

// Throws std::system_error, with one sentence, where RIDGEPOINT_PRESETS names no folder of presets.
void require_preset_directory();

// The bytes of a file of that folder. Throws PresetError if unreadable, and as require_preset_directory().
std::string preset_text(const std::filesystem::path& file);

// The file of a preset, by its name or an alias; nothing where there is none, or where aliases.json cannot be
// read.
std::optional<std::filesystem::path> find_preset(PresetKind kind, std::string_view name);

// Names without ".json", sorted as people would (sizes by number).
std::vector<std::string> preset_names(PresetKind kind);

// Each throws PresetError; an unknown name lists the nearest ones that exist.
Model load_model_preset(std::string_view name);
Hardware load_hardware_preset(std::string_view name);  // not "this-machine", which runtime/ measures
Implementation load_implementation_preset(std::string_view name);
Workload load_workload_preset(std::string_view name);
Scenario load_scenario_preset(std::string_view name);
SeriesSet load_series_preset(std::string_view name);

// Resolves presets/aliases.json: "h100" is "h100-sxm". Models are also found under other people's spellings:
// "Meta-Llama-3-70B-Instruct", "GPT3 175B". A name that is no alias comes back as it is.
std::string resolve_alias(PresetKind kind, std::string_view name);

// Scenario files. Each part is a preset's name or an object. An object, also the whole file, may have
// "extends" with a preset's name. to_json writes every field, and its output reads back equal. Hardware
// "this-machine" stays a name alone: whoever can measure it fills it in (runtime/this_machine.h).
Scenario scenario_from_json(std::string_view json, const std::string& file);
std::string to_json(const Scenario& scenario);
Model model_from_json(std::string_view json, const std::string& file);
std::string to_json(const Model& model);

}  // namespace sim
