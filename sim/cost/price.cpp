#include "sim/cost/price.h"

#include <algorithm>

#include "sim/cost/efficiency.h"
#include "sim/cost/gpu_price.h"
#include "sim/cost/network.h"
#include "sim/plan/ranks.h"

namespace sim {
namespace {

// 90th percentile of the error of latency and bandwidth per operation and group size, over 774 collectives in
// the tables of github.com/ai-dynamo/aiconfigurator.
constexpr double kCollectiveError = 0.45;
// Ring collectives saturate at this share of a link's rate: 367 of 450 GB/s on H200, 235 of 300 on A100 (S.
// Bekman, ml-engineering, network).
constexpr double kLinkEfficiency = 0.8;

// Copies between pinned host memory and an A100 reach 24.8 of PCIe 4.0's 32 GB/s in one direction
// (nvbandwidth 0.8 on eight A100 SXM4, forums.developer.nvidia.com/t/352186); with both directions at once as
// little as 11.
constexpr double kHostLinkEfficiency = 24.8 / 32;
constexpr double kHostLinkError = 1.2;
// The host's optimizer streams its states; how near to the memory's rate depends on threads and their
// binding: 1.3 times by binding alone (DeepSpeed pull request 7474), and sharing cores with data loading.
constexpr double kHostMemoryEfficiency = 0.8;
constexpr double kHostMemoryError = 1.0;

Price price_collective(const Work& work, const Dims& dims, const Group& group, const Hardware& h,
                       Seconds launch) {
  if (group.size <= 1) return with_error(launch, kCollectiveError, Bound::launch, Provenance::datasheet);
  const bool in_node = ranks_in_node(group, h.devices_per_node) == group.size && h.node_link.value > 0;
  const BytesPerSecond link = in_node ? h.node_link : h.network_link;
  const Seconds latency = in_node ? h.node_latency : h.network_latency;
  const Seconds fixed = launch + latency * (group.size - 1);  // hops of a ring
  const double sent = in_node ? 1 : crossing_share(dims, group, h);
  const Seconds transfer = work.network / (link * kLinkEfficiency) * sent;
  return with_error(fixed + transfer, kCollectiveError, Bound::network, Provenance::datasheet);
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
  if (calibration && calibration->gpu)
    if (const auto tabulated = gpu_price(*calibration->gpu, work, op, v, hardware, group, software))
      return *tabulated;
  const Seconds launch = calibration ? calibration->launch : hardware.launch;
  if (is_collective(op.kind))
    return price_collective(work, op.dims, group ? *group : Group{}, hardware, launch);

  if (work.copied.value > 0)
    return with_error(launch + work.copied / (hardware.host_link * kHostLinkEfficiency), kHostLinkError,
                      Bound::host, Provenance::datasheet);
  if (work.host.value > 0)
    return with_error(work.host / (hardware.host_memory_bandwidth * kHostMemoryEfficiency), kHostMemoryError,
                      Bound::host, Provenance::datasheet);

  const KernelSample shape = kernel_shape(op, v, work, working_set);
  const Seconds compute = work.flops.value > 0 ? work.flops / hardware.peak_for(op.dtype) : Seconds{};
  const Seconds memory = work.memory() / hardware.memory_bandwidth;
  if (calibration) {
    if (const auto measured = calibrated_ratio(*calibration, shape)) {
      // Kernels of a step find caches and neighbours that a kernel timed alone does not: even an exact shape
      // is known no better than the samples know each other in the median.
      const double error = measured->exact
                               ? std::max(measured->spread, calibration->residual_median)
                               : std::max(calibration->residual_p90, calibration->residual_median);
      const Seconds t = (launch + std::max(compute, memory)) * measured->ratio;
      return with_error(t, error, bound_of(launch, compute, memory),
                        measured->exact ? Provenance::calibrated : Provenance::interpolated);
    }
  }
  const Efficiency e = datasheet_efficiency(shape);
  const Seconds slow_compute = compute * (1 / e.compute), slow_memory = memory * (1 / e.memory);
  return with_error(launch + std::max(slow_compute, slow_memory), e.error,
                    bound_of(launch, slow_compute, slow_memory), Provenance::datasheet);
}

}  // namespace sim
