// Collectives across nodes that nobody measured: NCCL's own latencies and the bandwidth of a group's
// adapters.
#pragma once
#include "sim/cost/gpu_calibration.h"

namespace sim {

// `node_bus` is what a ring reaches inside a node.
Seconds multi_node_time(const Hardware& hardware, BytesPerSecond node_bus, const CollectiveShape& shape);

}  // namespace sim
