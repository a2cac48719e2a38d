// Collectives that nobody measured, inside a node and across nodes: NCCL's own latencies, and the bandwidth
// of a node's links and of a group's adapters.
#pragma once
#include "sim/cost/gpu_calibration.h"
#include "sim/plan/plan.h"

namespace sim {

// `node_bus` is what a ring reaches inside a node.
Seconds collective_by_formula(const Hardware& hardware, BytesPerSecond node_bus,
                              const CollectiveShape& shape);
// Four in five of the clusters that users reported lie within a factor of 1 + kFormulaError.
inline constexpr double kFormulaError = 1.0;

// Copies of a token that cross nodes if one goes to each node with a chosen expert, over those if one goes
// to each expert: distinct nodes / chosen experts. Experts are equally likely within the nodes that their
// groups lie on (DeepSeek-V3, arXiv 2412.19437, section 3.2.2: at most 4 nodes for 8 experts). 1 in a node,
// and for operations that do not exchange copies of tokens (Dims of OpKind::all_to_all).
double crossing_share(const Dims& dims, const Group& group, const Hardware& hardware);

}  // namespace sim
