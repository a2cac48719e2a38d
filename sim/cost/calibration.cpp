#include "sim/cost/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/cost/near_samples.h"
#include "sim/quantile.h"

namespace sim {
namespace {

// Other programs share a CPU, so a sample on it is itself off by a tenth. The noise keeps the very nearest
// sample from deciding alone: at a distance of the square root of kNoise a sample weighs half as much as at
// none. A GPU is ours alone while it runs.
constexpr double kNoise = 0.3;  // squared; a factor of 1.7 in one dimension
constexpr double kNoiseOfGpu = 0.01;

// Reads only the samples of that working set, and those that do not depend on the working set.
std::optional<CalibratedRatio> ratio_among_kind(const Calibration& c, const KernelSample& shape, OpKind kind,
                                                Bytes working_set, const KernelSample* without) {
  NearSamples others(shape, c.hardware.is_cpu ? kNoise : kNoiseOfGpu);
  double exact_sum = 0, exact_spread = 0;
  int exact = 0;
  for (const KernelSample& s : c.samples) {
    if (s.kind != kind || s.dtype != shape.dtype || s.stored != shape.stored || &s == without) continue;
    if (s.working_set.value != 0 && s.working_set != working_set) continue;
    const double ideal = roofline_time(c.hardware, c.launch, s.dtype, s.flops, s.bytes).value;
    const double log_ratio = std::log(s.median.value / ideal);
    if (others.add(s, log_ratio) > 0) continue;
    ++exact;
    exact_sum += log_ratio;
    exact_spread = std::max(exact_spread, s.spread);
  }
  if (exact > 0) return CalibratedRatio{std::exp(exact_sum / exact), kind == shape.kind, exact_spread};
  if (others.empty()) return std::nullopt;
  return CalibratedRatio{std::exp(others.log_ratio()), false, 0};
}

// The measured working sets on both sides of the one asked for. Both are the same if the one asked for lies
// beyond the outermost, or if only one was measured.
struct WorkingSets {
  Bytes below, above;
};

WorkingSets measured_working_sets(const Calibration& c, const KernelSample& shape, OpKind kind) {
  const Bytes working_set = shape.working_set;
  Bytes smallest{std::numeric_limits<std::int64_t>::max()}, largest, below, above = smallest;
  for (const KernelSample& s : c.samples) {
    if (s.kind != kind || s.dtype != shape.dtype || s.stored != shape.stored || s.working_set.value == 0)
      continue;
    smallest = std::min(smallest, s.working_set);
    largest = std::max(largest, s.working_set);
    if (s.working_set <= working_set) below = std::max(below, s.working_set);
    if (s.working_set >= working_set) above = std::min(above, s.working_set);
  }
  if (working_set <= smallest) return {smallest, smallest};
  if (working_set >= largest) return {largest, largest};
  return {below, above};
}

// Interpolates between two measured working sets. Where the last cache does not hold the larger one, a share
// of the operands comes from memory and the rest from the cache, and their times add up.
double ratio_between(double low, Bytes below, double high, Bytes above, Bytes working_set,
                     const Calibration& c) {
  const double least = share_from_memory(c, below), most = share_from_memory(c, above);
  if (least < most) return std::lerp(low, high, (share_from_memory(c, working_set) - least) / (most - least));
  const auto log = [](Bytes b) { return std::log(static_cast<double>(b.value)); };
  return low * std::pow(high / low, (log(working_set) - log(below)) / (log(above) - log(below)));
}

std::optional<CalibratedRatio> ratio_at_working_set(const Calibration& c, const KernelSample& shape,
                                                    OpKind kind, const KernelSample* without) {
  const auto [below, above] = measured_working_sets(c, shape, kind);
  const auto low = ratio_among_kind(c, shape, kind, below, without);
  if (below == above) return low;
  const auto high = ratio_among_kind(c, shape, kind, above, without);
  if (!low || !high) return low ? low : high;
  return CalibratedRatio{ratio_between(low->ratio, below, high->ratio, above, shape.working_set, c),
                         low->exact && high->exact, std::max(low->spread, high->spread)};
}

}  // namespace

std::optional<CollectiveTime> calibrated_collective(const Calibration& calibration, OpKind kind, int ranks,
                                                    double bytes) {
  std::vector<CollectiveSample> sizes;
  for (const CollectiveSample& s : calibration.collectives)
    if (s.kind == kind && s.ranks == ranks) sizes.push_back(s);
  if (sizes.size() < 2) return std::nullopt;
  std::ranges::sort(sizes, {}, [](const CollectiveSample& s) { return s.bytes.value; });
  const auto size_of = [](const CollectiveSample& s) { return static_cast<double>(s.bytes.value); };
  const auto on_line = [&](const CollectiveSample& a, const CollectiveSample& b, double x) {
    const double t = std::log(x / size_of(a)) / std::log(size_of(b) / size_of(a));
    return a.median * std::pow(b.median / a.median, t);
  };
  CollectiveTime found;
  for (std::size_t i = 1; i + 1 < sizes.size(); ++i) {
    const Seconds guess = on_line(sizes[i - 1], sizes[i + 1], size_of(sizes[i]));
    found.error = std::max(found.error, std::abs(guess / sizes[i].median - 1));
  }
  const CollectiveSample &smallest = sizes.front(), &largest = sizes.back();
  if (bytes <= size_of(smallest))
    found.time = smallest.median;
  else if (bytes >= size_of(largest))
    found.time = largest.median * (bytes / size_of(largest));
  else {
    const auto above = std::ranges::find_if(sizes, [&](const auto& s) { return size_of(s) >= bytes; });
    found.time = on_line(*(above - 1), *above, bytes);
  }
  return found;
}

KernelSample kernel_shape(const Operation& op, const Variables& of_action, const Work& work,
                          Bytes working_set, std::optional<DType> stored) {
  const Variables v = bound_to(op, of_action);
  KernelSample s;
  s.stored = stored;
  s.working_set = working_set;
  s.kind = op.kind;
  s.dtype = op.dtype;
  s.rows = op.dims.rows.value(v);
  s.cols = op.dims.hidden > 0 ? op.dims.hidden : op.dims.vocab > 0 ? op.dims.vocab : op.dims.cols.value(v);
  s.inner = op.dims.inner.value(v);
  s.groups = op.dims.groups;
  if (op.dims.heads > 0) {
    const Variables whole = whole_attention(op, v);
    s.batch = v.batch;
    s.query_length = whole.query_length;
    s.kv_length = whole.kv_length;
    s.heads = op.dims.heads;
    s.kv_heads = op.dims.kv_heads;
    // Where keys and values differ in width, attention takes as long as at their mean width.
    s.head_dim = op.dims.value_dim > 0 ? (op.dims.head_dim + op.dims.value_dim) / 2 : op.dims.head_dim;
  }
  s.flops = work.flops;
  s.bytes = work.memory();
  return s;
}

std::optional<DType> narrow_storage(const Plan& plan, const Operation& op) {
  const BufferId mask = operand(op, Role::mask).buffer;
  std::optional<DType> narrowest;
  for (const Operand& o : op.operands) {
    if (o.buffer == kNoBuffer || o.buffer == mask) continue;
    const DType stored = plan.buffer(o)->dtype;
    if (bits(stored) < bits(narrowest.value_or(op.dtype))) narrowest = stored;
  }
  return narrowest;
}

double share_from_memory(const Calibration& c, Bytes working_set) {
  if (working_set.value == 0) return 1;
  const auto size = static_cast<double>(working_set.value);
  const std::vector<CacheShare>& measured = c.cache_shares;
  const auto above = std::ranges::lower_bound(measured, working_set, {}, &CacheShare::working_set);
  if (above == measured.end()) {
    const double kept = measured.empty() ? static_cast<double>(c.hardware.last_level_cache.value)
                                         : (1 - measured.back().from_memory) *
                                               static_cast<double>(measured.back().working_set.value);
    return kept > 0 ? std::max(0.0, 1 - kept / size) : 1;
  }
  if (above == measured.begin()) return above->from_memory;
  const CacheShare& below = *(above - 1);
  const auto from = static_cast<double>(below.working_set.value),
             to = static_cast<double>(above->working_set.value);
  return std::lerp(below.from_memory, above->from_memory, (size - from) / (to - from));
}

Roofline roofline(const Hardware& hardware, Seconds launch, const KernelSample& shape) {
  return {launch, shape.flops.value > 0 ? shape.flops / hardware.peak_for(shape.dtype) : Seconds{},
          shape.bytes / hardware.memory_bandwidth};
}

Roofline slowed(const Roofline& roofline, const Slowdown& slowdown, double from_memory) {
  const double of_memory =
      std::pow(slowdown.memory, from_memory) * std::pow(slowdown.arithmetic, 1 - from_memory);
  return {roofline.launch * slowdown.arithmetic, roofline.compute * slowdown.arithmetic,
          roofline.memory * of_memory};
}

Seconds roofline_time(const Hardware& hardware, Seconds launch, DType dtype, Flops flops, Bytes bytes) {
  KernelSample shape;
  shape.dtype = dtype;
  shape.flops = flops;
  shape.bytes = bytes;
  return roofline(hardware, launch, shape).time();
}

std::optional<CalibratedRatio> calibrated_ratio(const Calibration& calibration, const KernelSample& shape,
                                                const KernelSample* without) {
  const auto own = ratio_at_working_set(calibration, shape, shape.kind, without);
  if (own) return own;
  if (is_product(shape.kind) && shape.kind != OpKind::matmul)
    if (const auto plain = ratio_at_working_set(calibration, shape, OpKind::matmul, without)) return plain;
  if (!shape.stored) return std::nullopt;
  KernelSample wide = shape;
  wide.stored.reset();
  return calibrated_ratio(calibration, wide, without);
}

std::optional<Seconds> calibrated_time(const Calibration& calibration, const KernelSample& shape,
                                       const KernelSample* without) {
  const auto found = calibrated_ratio(calibration, shape, without);
  if (!found) return std::nullopt;
  return roofline_time(calibration.hardware, calibration.launch, shape.dtype, shape.flops, shape.bytes) *
         found->ratio;
}

std::map<std::pair<OpKind, DType>, std::vector<double>> leave_one_out_residuals(
    const Calibration& calibration) {
  std::map<std::pair<OpKind, DType>, std::vector<double>> residuals;
  for (const KernelSample& s : calibration.samples) {
    const auto r = ratio_among_kind(calibration, s, s.kind, s.working_set, &s);
    if (!r) continue;
    const Seconds ideal = roofline_time(calibration.hardware, calibration.launch, s.dtype, s.flops, s.bytes);
    residuals[{s.kind, s.dtype}].push_back(std::abs(r->ratio * ideal.value / s.median.value - 1));
  }
  return residuals;
}

void set_residuals(Calibration& calibration) {
  const auto residual = [](const std::vector<double>& of) {
    return of.empty() ? Residual{} : Residual{quantile(of, 0.5), quantile(of, 0.9)};
  };
  std::vector<double> all;
  calibration.residual_of.clear();
  for (const auto& [kind, of_kind] : leave_one_out_residuals(calibration)) {
    if (of_kind.size() > 1) calibration.residual_of[kind] = residual(of_kind);
    all.insert(all.end(), of_kind.begin(), of_kind.end());
  }
  calibration.residual = residual(all);
}

}  // namespace sim
