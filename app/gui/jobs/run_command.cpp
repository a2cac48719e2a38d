#include "app/gui/jobs/run_command.h"

#include <utility>

namespace app::gui {
namespace {

// Ranks take a GPU each, as far as there are.
std::string device_flag(const RunPlace& place, const sim::Scenario& scenario) {
  return place.is_gpu() && scenario.strategy.devices() > 1 ? "cuda" : place.device;
}

}  // namespace

std::vector<std::string> run_command(const std::string& executable, const std::filesystem::path& file,
                                     const sim::Scenario& scenario, const RunChoices& choices) {
  const bool train = scenario.workload.task == sim::Task::train;
  std::vector<std::string> command = {executable,         train ? "train" : "generate",
                                      "--scenario",       file.string(),
                                      "--implementation", "ridgepoint",
                                      "--device",         device_flag(choices.place, scenario),
                                      "--dtype",          std::string(sim::name(choices.place.dtype)),
                                      "--stream"};
  if (train)
    command.insert(command.end(), {"--steps", std::to_string(choices.steps)});
  else
    for (std::string& word : prompt_flags(choices, scenario)) command.push_back(std::move(word));
  return command;
}

}  // namespace app::gui
