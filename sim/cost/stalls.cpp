#include "sim/cost/stalls.h"

// Counts are of steps of the HF Ultra-Scale Playbook, data of its interactive figure.
namespace sim {
namespace {

bool stages_cross_nodes(const Scenario& scenario, const Hardware& hardware) {
  return scenario.strategy.pipeline_parallel > 1 && scenario.strategy.devices() > hardware.devices_per_node;
}

bool has_many_ranks(const Scenario& scenario) {
  const int from = scenario.implementation.pipeline.stalls_from_ranks;
  return from > 0 && scenario.strategy.devices() >= from;
}

}  // namespace

// 91 of 92 pipelines on 512 GPUs stalled, and all 34 on 64 to 256 whose tensor parallel groups lie on four
// nodes; of the others on up to 256, one in four.
bool usually_stalls(const Scenario& scenario) {
  constexpr int kNodes = 4;
  const Strategy& s = scenario.strategy;
  const bool on_many_nodes = scenario.implementation.pipeline.stalls_from_ranks > 0 &&
                             s.pipeline_parallel > 1 &&
                             s.tensor_parallel >= kNodes * scenario.hardware.devices_per_node;
  return on_many_nodes || has_many_ranks(scenario);
}

HostWork usual_work(const Scenario& scenario, HostWork work) {
  if (usually_stalls(scenario)) work.before += work.stall;
  return work;
}

CollectiveDelay collective_delay(const Scenario& scenario, const Hardware& hardware, Fabric fabric) {
  const Strategy& s = scenario.strategy;
  if (stages_cross_nodes(scenario, hardware)) return CollectiveDelay::of_nodes;
  // Without stages steps took so much longer where they gather inputs again, by what their memory shows: 10
  // of 12 whose groups lie on several nodes, and 16 of 18 on 512 GPUs, those in a node too; of those that
  // keep them 3 of 42, and none.
  if (s.pipeline_parallel > 1 || !scenario.implementation.tensor_parallel.gathers_again)
    return CollectiveDelay::none;
  if (fabric != Fabric::calm && has_many_ranks(scenario)) return CollectiveDelay::of_stall;
  return s.tensor_parallel > hardware.devices_per_node ? CollectiveDelay::of_nodes : CollectiveDelay::none;
}

// On 512 GPUs steps whose collectives kept their pace lost about two stalls, however many micro-batches they
// had (median of twelve 0.74 s).
Seconds stall_without_stages(const Scenario& scenario) {
  const bool collectives_stall =
      collective_delay(scenario, scenario.hardware, Fabric::usual) != CollectiveDelay::none;
  if (scenario.strategy.pipeline_parallel > 1 || !has_many_ranks(scenario) || collectives_stall) return {};
  return scenario.implementation.pipeline.stall;
}

}  // namespace sim
