#include "sim/cost/network.h"

#include <algorithm>
#include <cmath>

#include "sim/plan/ranks.h"

namespace sim {
namespace {

// NCCL 2.30.7, src/graph/tuning.cc: base latency of the Simple protocol, and a hop's latency by NVLink and by
// network, of rings and of trees. Low-latency protocols would speed up short messages; FasterTransformer's
// published times on several nodes show no such gain: 565 ms for 16 ranks, 565 by this formula.
constexpr Seconds kBase = us(8.4), kRingNodeHop = us(3.4), kRingNetworkHop = us(14);
constexpr Seconds kTreeNodeHop = us(4.0), kTreeNetworkHop = us(14);
// NVIDIA/nccl issues: 46 to 48 GB/s are expected from a 400 Gb/s adapter.
constexpr double kAdapterEfficiency = 0.93;
// Where rings' steps are slow, a level of a tree takes as long as 25 of them for 256 MB, and less for smaller
// messages. This was fitted to all-reduce against all-gather over 4 to 64 nodes (HF Ultra-Scale Playbook,
// figure pp_comm_bandwidth); only that network has such steps. With one step a level the playbook's sweep is
// 12.2 instead of 11.4 % off in the median, and its first choice on 256 GPUs costs 14 instead of 3 %.
constexpr double kTreeLevelSteps = 25, kTreeLevelBytes = 256.0 * 1024 * 1024;
// Pipeline transfers: constant of github.com/ai-dynamo/aiconfigurator.
constexpr Seconds kSendLatency = us(10);

}  // namespace

Seconds collective_by_formula(const Hardware& hardware, BytesPerSecond node_bus,
                              const CollectiveShape& shape) {
  const double n = shape.ranks, r = std::max(1, std::min(shape.ranks_per_node, shape.ranks));
  const double nodes = std::max(1.0, std::ceil(n / r));
  const BytesPerSecond adapter = hardware.network_link * kAdapterEfficiency;
  const auto transfer = [](double bytes, BytesPerSecond rate) { return Seconds{bytes / rate.value}; };
  if (shape.operation == CollectiveOperation::send_receive)
    return kSendLatency + transfer(shape.bytes, nodes == 1 ? node_bus : adapter);
  if (shape.operation == CollectiveOperation::all_to_all) {
    // Data that stays in the node uses its links. Data that leaves it uses the rank's own adapter.
    const Seconds within = transfer(shape.bytes * (r - 1) / r, node_bus);
    if (nodes == 1) return kBase + within;
    const Seconds across =
        kBase + kRingNetworkHop * (nodes - 1) + transfer(shape.bytes * shape.crossing * (n - r) / n, adapter);
    // Data that has crossed is passed on inside the node while more of it arrives.
    return shape.crossing < 1 ? std::max(across, within) : across;
  }

  const bool reduces_all = shape.operation == CollectiveOperation::all_reduce;
  const double passes = reduces_all ? 2 : 1;
  const BytesPerSecond ring_bus{nodes == 1 ? node_bus.value
                                : r > 1    ? std::min(node_bus.value, r * adapter.value)
                                           : adapter.value};
  const Seconds moved = transfer(bus_factor(shape.operation, shape.ranks) * shape.bytes, ring_bus);
  const Seconds node_hop = std::max(kRingNodeHop, hardware.node_latency),
                network_hop = std::max(kRingNetworkHop, hardware.network_latency);
  const Seconds hops = node_hop * (passes * (n - nodes)) + network_hop * (passes * (nodes - 1));
  const Seconds ring = kBase + std::max(hops, hardware.network_step * (passes * (n - 1))) + moved;
  if (!reduces_all || nodes == 1) return ring;
  // A tree moves the message up and down at SimAI's rate (github.com/aliyun/SimAI). With two nodes both send
  // at once in both directions.
  const double both_ways = nodes == 2 ? 2 : nodes == 3 ? 4.0 / 3 : 1;
  double rate = r * adapter.value * both_ways;
  if (r > 1) rate = std::min(rate, node_bus.value * r / (r - 1));
  const Seconds levels =
      hardware.network_step * (kTreeLevelSteps * std::min(1.0, shape.bytes / kTreeLevelBytes));
  const Seconds tree = kBase + kTreeNodeHop * (2 * (r - 1)) + kTreeNetworkHop * (2 * std::log2(nodes)) +
                       transfer(2 * shape.bytes, {rate}) + levels * (2 * std::log2(nodes));
  return std::min(ring, tree);
}

double crossing_share(const Dims& dims, const Group& group, const Hardware& hardware) {
  const double nodes =
      group.size / std::max(1.0, static_cast<double>(ranks_in_node(group, hardware.devices_per_node)));
  if (dims.chosen_groups == 0 || nodes <= 1) return 1;
  const double experts = static_cast<double>(dims.experts), groups = static_cast<double>(dims.groups);
  const double reached =
      std::min(nodes, static_cast<double>(dims.chosen_groups) * std::max(1.0, nodes / groups));
  // The probability that a node holds none of the chosen experts, which are drawn without replacement.
  const double within = experts * reached / nodes, held = experts / nodes;
  double none = 1;
  for (std::int64_t i = 0; i < dims.chosen; ++i)
    none *= std::max(0.0, 1 - held / (within - static_cast<double>(i)));
  return std::min(1.0, reached * (1 - none) / static_cast<double>(dims.chosen));
}

}  // namespace sim
