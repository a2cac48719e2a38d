// Files that a desktop takes whole: what was configured, measured, or only described.
#pragma once
#include <filesystem>
#include <variant>
#include <vector>

#include "sim/report/events.h"
#include "sim/scenario/scenario.h"

namespace app::gui {

// A scenario (JSON, or an export that carries one: PNG, SVG, HTML); the events of a run, a report's too; a
// model: Hugging Face's config.json or the folder that has it, or a GGUF file, of which the header is read.
// Nothing for any other kind, which a panel may know.
using OpenedFile = std::variant<std::monostate, sim::Scenario, std::vector<sim::Event>, sim::Model>;

// Throws std::exception with a sentence that names the file, where it is of such a kind and cannot be read.
OpenedFile read_opened(const std::filesystem::path& file);

// Written beside and renamed over. Throws std::runtime_error, a sentence.
void save_scenario(const sim::Scenario& scenario, const std::filesystem::path& file);

}  // namespace app::gui
