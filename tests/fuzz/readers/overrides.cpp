// Fields of a scenario given as --set gives them: PATH=VALUE, one a line.
// Read by: sim/scenario/overrides.cpp sim/scenario/fields.cpp
#include "sim/scenario/overrides.h"

#include "sim/plan/legality.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return {"model.num_hidden_layers=3\nworkload.seq_len=4096\n",
          "hardware.memory_gib=40\nmodel=\"gpt2-124m\"\n",
          "strategy={\"tensor_parallel\":2}\nstrategy.zero_stage=1\n",
          "implementation=ridgepoint\nmodel.head_dim=64\n"};
}

void fuzz::read(std::string_view input) {
  static const sim::Scenario base =
      sim::load_scenario_preset(sim::preset_names(sim::PresetKind::scenario).front());
  std::vector<sim::Override> all;
  while (!input.empty()) {
    const std::size_t end = std::min(input.find('\n'), input.size());
    const std::string_view line = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
    if (const std::size_t equals = line.find('='); equals != std::string_view::npos)
      all.push_back({std::string(line.substr(0, equals)), std::string(line.substr(equals + 1))});
  }
  try {
    sim::validate(sim::with_overrides(base, all, kFile));
  } catch (const sim::PresetError& error) {
    require(*error.what() != '\0', "a refusal says why");
  }
}
