#include "sim/scenario/expert_division.h"

namespace sim {

void complete_expert_division(Scenario& scenario, const SaidOfExperts& said) {
  Strategy& s = scenario.strategy;
  const bool divides_both = s.expert_parallel > 1 && s.tensor_parallel > 1;
  if (scenario.workload.task != Task::train || !scenario.model.has_experts() || !divides_both) return;
  if (!said.sequence_parallel) s.sequence_parallel = true;
  const std::int64_t replicas = std::int64_t{s.data_parallel} * s.context_parallel;
  // The remainder comes first: the degrees are not checked yet, and the product of all three may not fit.
  const std::int64_t rest = replicas % s.expert_parallel;
  const bool too_few = rest != 0 && rest * s.tensor_parallel % s.expert_parallel == 0;
  if (!said.expert_tensor_parallel && too_few) s.expert_tensor_parallel = 1;
}

}  // namespace sim
