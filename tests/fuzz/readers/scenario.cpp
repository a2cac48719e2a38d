// A scenario: written again as it was read, and predicted where nothing speaks against it.
// Read by: sim/scenario/scenario_json.cpp sim/json_object.cpp
#include <cstdint>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all = files_of("presets/scenarios", ".json");
  for (const char* const name : {"llama-2-7b", "mixtral-8x7b", "nemotron-h-8b"}) {
    sim::Scenario scenario;
    scenario.model = sim::load_model_preset(name);
    scenario.hardware = sim::load_hardware_preset("h100-sxm");
    scenario.implementation = sim::load_implementation_preset("ridgepoint");
    scenario.workload = sim::load_workload_preset("pretrain-2k");
    all.push_back(sim::to_json(scenario));
  }
  return all;
}

void fuzz::read(std::string_view input) {
  const sim::Scenario scenario =
      require_shallow(input, [&] { return sim::scenario_from_json(input, kFile); });
  const std::string written = sim::to_json(scenario);
  require_same(sim::to_json(sim::scenario_from_json(written, kFile)), written,
               "a scenario is written as it is read");
  if (!sim::validate(scenario).empty()) return;
  // A legal step may be 2^24 actions, whose plan is longer than what is allowed of an input here.
  constexpr std::int64_t kMostActions = 1 << 19;
  const sim::Workload& work = scenario.workload;
  if (work.task == sim::Task::train &&
      work.global_batch_size / work.micro_batch_size * scenario.model.num_hidden_layers > kMostActions)
    return;
  const sim::Report report = sim::predict(scenario);
  require(report.step_time.value >= 0, "a step takes no negative time");
  require(sim::peak_memory(report).value >= 0, "a peak is not negative");
}
