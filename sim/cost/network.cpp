#include "sim/cost/network.h"

#include <algorithm>
#include <cmath>

namespace sim {
namespace {

// NCCL 2.30.7, src/graph/tuning.cc: base latency of the Simple protocol, and a hop's by NVLink and by
// network, of rings and of trees.
constexpr Seconds kBase = us(8.4), kRingNodeHop = us(3.4), kRingNetworkHop = us(14);
constexpr Seconds kTreeNodeHop = us(4.0), kTreeNetworkHop = us(14);
// NVIDIA/nccl issues: 46 to 48 GB/s of a 400 Gb/s adapter are what is expected.
constexpr double kAdapterEfficiency = 0.93;
// A level of a tree fills as slowly as five nodes of a ring: all-reduce against all-gather of 256 MB over 4 to
// 64 nodes, HF Ultra-Scale Playbook, figure pp_comm_bandwidth.
constexpr double kTreeFill = 5;
// Pipeline transfers: constant of github.com/ai-dynamo/aiconfigurator.
constexpr Seconds kSendLatency = us(10);

}  // namespace

Seconds multi_node_time(const Hardware& hardware, BytesPerSecond node_bus, const CollectiveShape& shape) {
  const double n = shape.ranks, r = std::max(1, std::min(shape.ranks_per_node, shape.ranks));
  const double nodes = std::max(1.0, std::ceil(n / r));
  const BytesPerSecond adapter = hardware.network_link * kAdapterEfficiency;
  const auto transfer = [](double bytes, BytesPerSecond rate) { return Seconds{bytes / rate.value}; };
  const auto fill = [&](double bytes, double hops) {
    return Seconds{hardware.network_ramp * std::sqrt(bytes) * hops};
  };
  if (shape.operation == CollectiveOperation::send_receive)
    return kSendLatency + transfer(shape.bytes, adapter) + fill(shape.bytes, 1);
  if (shape.operation == CollectiveOperation::all_to_all)  // what leaves the node, over one's own adapter
    return kBase + kRingNetworkHop * (nodes - 1) + transfer(shape.bytes * (n - r) / n, adapter) +
           fill(shape.bytes, nodes - 1);

  const bool reduces_all = shape.operation == CollectiveOperation::all_reduce;
  const double passes = reduces_all ? 2 : 1;
  const BytesPerSecond ring_bus{r > 1 ? std::min(node_bus.value, r * adapter.value) : adapter.value};
  const Seconds ring = kBase + kRingNodeHop * (passes * (n - nodes)) +
                       kRingNetworkHop * (passes * (nodes - 1)) +
                       transfer(bus_factor(shape.operation, shape.ranks) * shape.bytes, ring_bus) +
                       fill(bus_factor(shape.operation, shape.ranks) * shape.bytes, passes * (nodes - 1));
  if (!reduces_all) return ring;
  // A tree moves the message up and down, at SimAI's rate (github.com/aliyun/SimAI): two nodes send both ways
  // at once.
  const double both_ways = nodes == 2 ? 2 : nodes == 3 ? 4.0 / 3 : 1;
  double rate = r * adapter.value * both_ways;
  if (r > 1) rate = std::min(rate, node_bus.value * r / (r - 1));
  const Seconds tree = kBase + kTreeNodeHop * (2 * (r - 1)) + kTreeNetworkHop * (2 * std::log2(nodes)) +
                       transfer(2 * shape.bytes, {rate}) + fill(2 * shape.bytes, kTreeFill * std::log2(nodes));
  return std::min(ring, tree);
}

}  // namespace sim
