#include "app/gui/command_line.h"

namespace app::gui {

std::string command_line(const sim::Scenario& scenario) {
  const sim::Workload& w = scenario.workload;
  std::string line = "ridgepoint predict --model " + scenario.model.name + " --hardware " +
                     scenario.hardware.name + " --implementation " + scenario.implementation.name +
                     " --dtype " + std::string(sim::name(w.dtype));
  const auto flag = [&line](const char* name, std::int64_t value) {
    line += std::string(" ") + name + " " + std::to_string(value);
  };
  if (w.task == sim::Task::train) {
    line += " --task train";
    flag("--seq-len", w.seq_len);
    flag("--micro-batch", w.micro_batch_size);
    flag("--global-batch", w.global_batch_size);
    line += " --recompute " + std::string(sim::name(scenario.strategy.recompute));
  } else {
    line += " --task generate";
    flag("--prompt-length", w.prompt_length);
    flag("--max-new-tokens", w.max_new_tokens);
    flag("--batch-size", w.batch_size);
    if (!w.kv_cache) line += " --no-kv-cache";
  }
  return line;
}

}  // namespace app::gui
