// How the work is divided over devices and what is recomputed.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace sim {

enum class Recompute {
  none,
  selective,
  full
};  // selective: the attention core alone (Korthikanti et al. 2022)
std::string_view name(Recompute recompute);
std::optional<Recompute> recompute_from_name(std::string_view text);

struct Strategy {
  int data_parallel = 1;
  int tensor_parallel = 1;
  int pipeline_parallel = 1;
  int context_parallel = 1;
  // Experts are divided over the data- and context-parallel devices, as in Megatron-LM: no further devices.
  int expert_parallel = 1;
  int expert_tensor_parallel = 0;  // devices that share one expert: 0 for tensor_parallel, or 1
  int virtual_pipeline = 1;
  int zero_stage = 0;
  bool sequence_parallel = false;
  std::string schedule = "1f1b";  // plan/schedule.h names them
  Recompute recompute = Recompute::none;

  bool operator==(const Strategy&) const = default;
  int devices_of_expert() const {
    return expert_tensor_parallel == 0 ? tensor_parallel : expert_tensor_parallel;
  }
  int devices() const { return data_parallel * tensor_parallel * pipeline_parallel * context_parallel; }
};

}  // namespace sim
