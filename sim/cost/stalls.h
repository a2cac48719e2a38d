// Networks between nodes that stall: what transfers and collectives take longer then, and when it is the rule
// (PipelineProfile::stall, HostProfile::collective_rank and collective_stall).
#pragma once
#include "sim/cost/execution.h"
#include "sim/scenario/scenario.h"

namespace sim {

// Never stalls, does where that is the rule, or wherever it may.
enum class Fabric { calm, usual, stalls };

// Whether transfers between stages stall more often than not; work as it then is.
bool usually_stalls(const Scenario& scenario);
HostWork usual_work(const Scenario& scenario, HostWork work);

// What collectives of tensor parallelism take the host longer: collective_rank for each other rank of their
// group, once several nodes take part; and collective_stall besides when the network stalls, which holds up
// messages of gradients, too.
enum class CollectiveDelay { none, of_nodes, of_stall };
CollectiveDelay collective_delay(const Scenario& scenario, const Hardware& hardware, Fabric fabric);

// What a step without stages, which transfers nothing, loses at its beginning and again before its update.
Seconds stall_without_stages(const Scenario& scenario);

}  // namespace sim
