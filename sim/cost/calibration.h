// What kernels reach of a machine's peaks, measured. An operation's time is
//   ratio * (launch + max(flops / peak, bytes / bandwidth))
// with the ratio of measured to ideal time looked up by kind and shape: exact shape, else interpolated in log
// space between neighbours, else held at the edge. Without a calibration the efficiencies of
// cost/efficiency.h apply and provenance says "datasheet".
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/cost/gpu_calibration.h"
#include "sim/cost/work.h"
#include "sim/plan/operation.h"
#include "sim/report/slowdown.h"
#include "sim/scenario/hardware.h"

namespace sim {

// One kernel timed: kind and its dimensions with the variables bound. kernel_shape() fills everything but the
// times, which are as runs have them on a CPU; dimensions that a kind does not have are zero.
struct KernelSample {
  OpKind kind{};
  DType dtype{};
  std::optional<DType> stored;  // of its operands' types that of the fewest bits, where computing takes more
  // Matrix products: M, N, K. Norms, embedding: rows, hidden. Cross-entropy, sampling: rows, vocabulary.
  // Elementwise kinds: rows, cols. Multi-tensor kinds have none: their bytes are their size.
  std::int64_t rows = 0, cols = 0, inner = 0;
  std::int64_t groups = 0;  // products of experts: which share the rows
  std::int64_t batch = 0, query_length = 0, kv_length = 0, heads = 0, kv_heads = 0,
               head_dim = 0;  // attention, rotation, KV append
  Flops flops;
  Bytes bytes;
  // Memory that is touched from one run on these operands to the next: whether they come from a cache or from
  // memory depends on it. 0: it makes no difference, or (of a shape that is looked up) is not known.
  Bytes working_set;
  Seconds median;
  double spread = 0;  // (90th percentile - 10th) / median
};

KernelSample kernel_shape(const Operation& op, const Variables& v, const Work& work, Bytes working_set = {},
                          std::optional<DType> stored = {});
// In which type an operation of a plan reads or writes fewer bits an element than it computes in: a product's
// int8 weights, what GELU widens from bf16 and rounds to it. Masks of dropout do not count.
std::optional<DType> narrow_storage(const Plan& plan, const Operation& op);

// A collective among ranks of one machine, each of which had computed on its share of the cores before.
struct CollectiveSample {
  OpKind kind{};
  int ranks = 0;
  Bytes bytes;  // of the message, as nccl-tests defines it (bus_share() of sim/plan/kinds.h)
  Seconds median;
};

// How far operands come from memory and not from the last cache, where a working set was touched in turn.
struct CacheShare {
  Bytes working_set;
  double from_memory = 0;
};

// The largest product run without a pause: what limits of power and heat leave of the rate that it has alone.
struct SustainedLoad {
  FlopsPerSecond burst, sustained;  // timed alone; over the last half of the load
  Seconds lasted;
  double sm_clock_mhz = 0, power_w = 0, temperature_c = 0;  // over that half; 0: the driver does not say
  std::string throttle;                                     // what held the clock back
};

// How well the samples of a kind know each other: of leaving one out, as a fraction of its time.
struct Residual {
  double median = 0, p90 = 0;
};

struct Calibration {
  int schema_version = 1;
  Hardware hardware;     // with measured peaks
  std::string device;    // "Intel Xeon, 2 threads"
  std::string date;      // ISO 8601
  std::string software;  // kernels' version, BLAS
  Seconds launch;        // fixed cost of an operation
  Seconds change;        // what an operation takes longer than its samples behind one of another kind
  // Cores that other programs kept busy while it was measured, in the mean; 0 also where that is not known.
  double cores_used_by_others = 0;
  std::vector<KernelSample> samples;
  std::vector<CollectiveSample> collectives;  // where ranks were timed
  std::vector<CacheShare> cache_shares;       // by working set, ascending; empty: not measured
  Slowdown slowdown;                          // of the machine since; a run's, not kept in files
  std::optional<SustainedLoad> load;          // of GPUs measured here; hardware.sustained_clock follows it
  std::optional<GpuCalibration> gpu;          // of calibrations that ship as presets, in place of samples
  Residual residual;                          // of all samples
  std::map<std::pair<OpKind, DType>, Residual> residual_of;  // of kinds with several
};

// How far operands come from memory and not from a cache, where `working_set` is touched in turn: between the
// working sets of cache_shares in proportion; beyond the largest the cache keeps what it kept of that. Where
// none were measured, 1 - cache / working set, since no cache keeps more than its size from one turn to the
// next (Belady's bound): 0 where the cache holds all of it, 1 where either is not known.
double share_from_memory(const Calibration& calibration, Bytes working_set);

// What a machine's peaks allow at best.
struct Roofline {
  Seconds launch, compute, memory;
  Seconds time() const { return launch + std::max(compute, memory); }
};
// The roofline of a kernel's flops and bytes.
Roofline roofline(const Hardware& hardware, Seconds launch, const KernelSample& shape);
// The same on a machine that is slower by so much. Caches run at the clock of the arithmetic.
Roofline slowed(const Roofline& roofline, const Slowdown& slowdown, double from_memory);
// The time of it with nothing slowed: launch + max(flops / peak, bytes / bandwidth).
Seconds roofline_time(const Hardware& hardware, Seconds launch, DType dtype, Flops flops, Bytes bytes);

// What the samples say of a shape: how many times its roofline time it takes.
struct CalibratedRatio {
  double ratio = 1;
  bool exact = false;  // this very shape was measured
  double spread = 0;   // of that measurement
};
// Empty where no sample is of the kind (a backward product may take the forward one's, an operation that
// stores fewer bits than it computes in that of one that does not) and type. Between two working sets that
// were measured, the ratio is interpolated: where the larger is not held by the last cache, by
// share_from_memory(), else along the logarithm of the working set; beyond them the nearer one's holds.
// `without` leaves one sample out.
std::optional<CalibratedRatio> calibrated_ratio(const Calibration& calibration, const KernelSample& shape,
                                                const KernelSample* without = nullptr);
// The time that this ratio makes of the shape's roofline_time(). Empty where there is no ratio.
std::optional<Seconds> calibrated_time(const Calibration& calibration, const KernelSample& shape,
                                       const KernelSample* without = nullptr);

// A collective by the samples of its kind among as many ranks: along the logarithms of size and time between
// two sizes; smaller messages take what the smallest does, larger ones pass at the largest's rate. Empty
// where fewer than two sizes were timed. `error`: of the worst size between two others, if it were predicted
// from them.
struct CollectiveTime {
  Seconds time;
  double error = 0;
};
std::optional<CollectiveTime> calibrated_collective(const Calibration& calibration, OpKind kind, int ranks,
                                                    double bytes);

// |predicted / measured - 1| of each sample, predicted from all the others; none of kinds with one sample.
std::map<std::pair<OpKind, DType>, std::vector<double>> leave_one_out_residuals(
    const Calibration& calibration);
// Sets residual and residual_of from them.
void set_residuals(Calibration& calibration);

Calibration calibration_from_json(std::string_view json, const std::string& file);  // throws PresetError
std::string to_json(const Calibration& calibration);

}  // namespace sim
