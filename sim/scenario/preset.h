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

// Where presets lie: the environment's RIDGEPOINT_PRESETS, else beside the installed program, else the source
// tree.
std::filesystem::path preset_directory();

// Throws std::system_error, one sentence, where RIDGEPOINT_PRESETS names no folder of them.
void require_preset_directory();

// The bytes of a file in it. Throws PresetError where there is none, and as require_preset_directory().
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

// presets/aliases.json: "h100" is "h100-sxm". Models are found in others' spellings too:
// "Meta-Llama-3-70B-Instruct", "GPT3 175B". Names that are no alias come back as they are.
std::string resolve_alias(PresetKind kind, std::string_view name);

// Scenario files: each part is a preset's name, or an object, which may have "extends" with a preset's name;
// so may the whole. to_json writes every field, and reads back equal. Hardware "this-machine" is left as that
// name alone: whoever can measure it fills it in (runtime/this_machine.h).
Scenario scenario_from_json(std::string_view json, const std::string& file);
std::string to_json(const Scenario& scenario);
Model model_from_json(std::string_view json, const std::string& file);
std::string to_json(const Model& model);

}  // namespace sim
