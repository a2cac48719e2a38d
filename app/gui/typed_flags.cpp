#include "app/gui/typed_flags.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <stdexcept>

#include "app/cli/scenario_flags.h"
#include "app/gui/presets.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr std::string_view kProgram = "ridgepoint ";

// With the parts that the flags name.
sim::Scenario with_named_parts(sim::Scenario scenario, const cli::ScenarioFlags& flags) {
  if (flags.model) scenario.model = load_model_choice(*flags.model);
  if (flags.implementation) scenario.implementation = sim::load_implementation_preset(*flags.implementation);
  if (flags.workload) scenario.workload = sim::load_workload_preset(*flags.workload);
  if (flags.hardware && *flags.hardware != sim::kThisMachine) {
    scenario.hardware = sim::load_hardware_preset(*flags.hardware);
  } else if (flags.hardware) {
    scenario.hardware = {};
    scenario.hardware.name = sim::kThisMachine;
  }
  return scenario;
}

}  // namespace

bool is_flags(std::string_view text) {
  return text.starts_with("--") || text.starts_with(kProgram);
}

sim::Scenario scenario_of_text(const sim::Scenario& now, const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) throw std::runtime_error("There is no text: a scenario as JSON, or flags.");
  std::string words = text.substr(begin);
  if (words.front() == '{') return sim::scenario_from_json(words, "the text");
  if (!is_flags(words))
    throw std::runtime_error(
        "The text is neither a scenario's JSON nor flags, as \"--seq-len 8k\" or \"ridgepoint predict "
        "...\".");
  const bool whole = words.starts_with(kProgram);
  if (whole) words.erase(0, std::min(words.find("--"), words.size()));  // the program and its command
  CLI::App app;
  cli::ScenarioFlags flags;
  flags.add_to(app);
  app.parse(words);
  if (whole) return cli::with_fields(cli::named_parts(flags).scenario, flags);
  if (flags.scenario)
    return cli::with_fields(with_named_parts(cli::named_parts(flags).scenario, flags), flags);
  // What is not typed stays as it is.
  flags.scenario = "now";
  return cli::with_fields(with_named_parts(now, flags), flags);
}

}  // namespace app::gui
