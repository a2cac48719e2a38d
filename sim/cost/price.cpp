#include "sim/cost/price.h"

#include <algorithm>

#include "sim/cost/efficiency.h"
#include "sim/cost/gpu_price.h"
#include "sim/cost/network.h"
#include "sim/plan/ranks.h"

namespace sim {
namespace {

// Ring collectives saturate at this share of a link's rate: 367 of 450 GB/s on H200, 235 of 300 on A100 (S.
// Bekman, ml-engineering, network).
constexpr double kLinkEfficiency = 0.8;

// Copies between pinned host memory and an A100 reach 24.8 of PCIe 4.0's 32 GB/s in one direction
// (nvbandwidth 0.8 on eight A100 SXM4, forums.developer.nvidia.com/t/352186); with both directions at once as
// little as 11.
constexpr double kHostLinkEfficiency = 24.8 / 32;
constexpr double kHostLinkError = 1.2;
// The host's optimizer streams its states. Its rate depends on threads, on their binding (1.3 times by
// binding alone, DeepSpeed pull request 7474), and on sharing cores with data loading.
constexpr double kHostMemoryEfficiency = 0.8;
constexpr double kHostMemoryError = 1.0;

double message_bytes(CollectiveOperation operation, const Work& work, const Group& group) {
  return static_cast<double>(work.network.value) / bus_factor(operation, group.size);
}

// Uses times measured on ranks of this very machine, whose cores copy the messages.
std::optional<Price> collective_here(const Calibration* calibration, CollectiveOperation operation,
                                     OpKind kind, const Work& work, const Group& group) {
  if (!calibration || group.size <= 1) return std::nullopt;
  const auto timed =
      calibrated_collective(*calibration, kind, group.size, message_bytes(operation, work, group));
  if (!timed) return std::nullopt;
  return with_error(timed->time * calibration->slowdown.arithmetic, timed->error, Bound::network,
                    Provenance::interpolated);
}

Price price_collective(CollectiveOperation operation, const Work& work, const Dims& dims, const Group& group,
                       const Hardware& h, Seconds launch) {
  if (group.size <= 1) return with_error(launch, kFormulaError, Bound::launch);
  const CollectiveShape shape{.operation = operation,
                              .bytes = message_bytes(operation, work, group),
                              .ranks = group.size,
                              .ranks_per_node = ranks_in_node(group, h.devices_per_node),
                              .crossing = crossing_share(dims, group, h)};
  const BytesPerSecond node_bus = (h.node_link.value > 0 ? h.node_link : h.network_link) * kLinkEfficiency;
  return with_error(collective_by_formula(h, node_bus, shape), kFormulaError, Bound::network);
}

}  // namespace

Price with_error(Seconds t, double error, Bound bound, Provenance provenance) {
  return {t, t * (1 / (1 + error)), t * (1 + error), bound, provenance};
}

Bound bound_of(Seconds launch, Seconds compute, Seconds memory) {
  if (launch > compute && launch > memory) return Bound::launch;
  return compute > memory ? Bound::compute : Bound::memory;
}

Price price(const Work& work, const Operation& op, const Variables& v, const Hardware& hardware,
            const Calibration* calibration, const Group* group, Bytes working_set,
            const KernelSoftware& software) {
  // The receiver waits, and the execution finds how long. The sender's time is that of the wires.
  if (op.kind == OpKind::receive) return {{}, {}, {}, Bound::bubble, Provenance::datasheet};
  if (calibration && calibration->gpu)
    if (const auto tabulated = gpu_price(*calibration->gpu, work, op, v, hardware, group, software))
      return *tabulated;
  const Slowdown slowdown = calibration ? calibration->slowdown : Slowdown{};
  const Seconds launch = (calibration ? calibration->launch : hardware.launch) * slowdown.arithmetic;
  if (const auto operation = info(op.kind).collective) {
    const Group among = group ? *group : Group{};
    if (const auto here = collective_here(calibration, *operation, op.kind, work, among)) return *here;
    return price_collective(*operation, work, op.dims, among, hardware, launch);
  }

  if (work.copied.value > 0)
    return with_error(launch + work.copied / (hardware.host_link * kHostLinkEfficiency), kHostLinkError,
                      Bound::host, Provenance::datasheet);
  if (work.host.value > 0)
    return with_error(work.host / (hardware.host_memory_bandwidth * kHostMemoryEfficiency), kHostMemoryError,
                      Bound::host, Provenance::datasheet);

  const KernelSample shape = kernel_shape(op, v, work, working_set, software.stored);
  const Roofline fast = roofline(hardware, calibration ? calibration->launch : hardware.launch, shape);
  const Roofline best =
      calibration ? slowed(fast, slowdown, share_from_memory(*calibration, working_set)) : fast;
  if (calibration) {
    if (const auto measured = calibrated_ratio(*calibration, shape)) {
      // In a step a kernel finds other caches and neighbours than when timed alone. So even an exact shape is
      // known no better than samples predict each other.
      const auto known = calibration->residual_of.find({op.kind, op.dtype});
      const Residual residual =
          known != calibration->residual_of.end() ? known->second : calibration->residual;
      const double error = std::max(measured->exact ? measured->spread : 0, residual.p90);
      return with_error(best.time() * measured->ratio, error,
                        bound_of(best.launch, best.compute, best.memory),
                        measured->exact ? Provenance::calibrated : Provenance::interpolated);
    }
  }
  const Efficiency e = datasheet_efficiency(shape);
  const Seconds slow_compute = best.compute * (1 / e.compute), slow_memory = best.memory * (1 / e.memory);
  return with_error(launch + std::max(slow_compute, slow_memory), e.error,
                    bound_of(launch, slow_compute, slow_memory), Provenance::datasheet);
}

}  // namespace sim
