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

// One timed kernel: its kind, and its dimensions with the variables bound. kernel_shape() fills all but the
// times, which are as runs have them on a CPU. Dimensions that a kind does not have are zero.
struct KernelSample {
  OpKind kind{};
  DType dtype{};
  std::optional<DType> stored;  // the operands' type of fewest bits, where it has fewer than `dtype`
  // Matrix products: M, N, K. Norms, embedding: rows, hidden. Cross-entropy, sampling: rows, vocabulary.
  // Elementwise kinds: rows, cols. Multi-tensor kinds have none: their bytes are their size.
  std::int64_t rows = 0, cols = 0, inner = 0;
  std::int64_t groups = 0;  // products of experts: number of experts that share the rows
  std::int64_t batch = 0, query_length = 0, kv_length = 0, heads = 0, kv_heads = 0,
               head_dim = 0;  // attention, rotation, KV append
  Flops flops;
  Bytes bytes;
  // Memory touched between one run on these operands and the next. It decides whether the operands come from
  // a cache or from memory. 0: it makes no difference or, for a shape to look up, is not known.
  Bytes working_set;
  Seconds median;
  double spread = 0;  // (90th percentile - 10th) / median
};

KernelSample kernel_shape(const Operation& op, const Variables& v, const Work& work, Bytes working_set = {},
                          std::optional<DType> stored = {});
// The type, of fewer bits than the one it computes in, in which an operation reads or writes an operand: int8
// for a product's int8 weights, bf16 where GELU widens from bf16 and rounds back. Dropout masks do not count.
std::optional<DType> narrow_storage(const Plan& plan, const Operation& op);

// A timed collective among ranks of one machine. Each rank had computed on its share of the cores before.
struct CollectiveSample {
  OpKind kind{};
  int ranks = 0;
  Bytes bytes;  // of the message, as nccl-tests defines it (bus_share() of sim/plan/kinds.h)
  Seconds median;
};

// The share of operands that come from memory, not the last cache, when a working set is touched in turn.
struct CacheShare {
  Bytes working_set;
  double from_memory = 0;
};

// The largest product run without a pause: its rate alone, and what limits of power and heat leave of it.
struct SustainedLoad {
  FlopsPerSecond burst, sustained;  // burst: timed alone; sustained: over the last half of the load
  Seconds lasted;
  double sm_clock_mhz = 0, power_w = 0, temperature_c = 0;  // over that half; 0: the driver does not say
  std::string throttle;                                     // what held the clock back
};

// How well samples of a kind predict each other: |predicted / measured - 1|, each sample left out in turn.
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
  Seconds change;        // extra time of an operation that runs right after one of another kind
  // Mean number of cores that other programs kept busy during the measurement; 0 also where it is not known.
  double cores_used_by_others = 0;
  std::vector<KernelSample> samples;
  std::vector<CollectiveSample> collectives;  // where ranks were timed
  std::vector<CacheShare> cache_shares;       // by working set, ascending; empty: not measured
  Slowdown slowdown;                          // of the machine since then; set for one run, not kept in files
  std::optional<SustainedLoad> load;          // of GPUs measured here; hardware.sustained_clock follows it
  std::optional<GpuCalibration> gpu;          // of calibrations that ship as presets, in place of samples
  Residual residual;                          // of all samples
  std::map<std::pair<OpKind, DType>, Residual> residual_of;  // of kinds with several
};

// The share of operands that come from memory, not from a cache, when `working_set` is touched in turn. It is
// linear between the working sets of cache_shares; beyond the largest, the cache keeps as much as it kept of
// that one. Where none were measured it is 1 - cache / working set, since no cache keeps more than its size
// from one turn to the next (Belady's bound): 0 where the cache holds all of it, 1 where either is not known.
double share_from_memory(const Calibration& calibration, Bytes working_set);

// What a machine's peaks allow at best.
struct Roofline {
  Seconds launch, compute, memory;
  Seconds time() const { return launch + std::max(compute, memory); }
};
// The roofline of a kernel's flops and bytes.
Roofline roofline(const Hardware& hardware, Seconds launch, const KernelSample& shape);
// The same on a machine slowed by `slowdown`. Caches slow down as arithmetic does: they run at its clock.
Roofline slowed(const Roofline& roofline, const Slowdown& slowdown, double from_memory);
// The time of a roofline on a machine that is not slowed: launch + max(flops / peak, bytes / bandwidth).
Seconds roofline_time(const Hardware& hardware, Seconds launch, DType dtype, Flops flops, Bytes bytes);

// What the samples say of a shape: its time as a multiple of its roofline time.
struct CalibratedRatio {
  double ratio = 1;
  bool exact = false;  // this very shape was measured
  double spread = 0;   // of that measurement
};
// Empty where there is no sample of the kind and type. A backward product and one of experts may use the
// plain forward product's samples, of the same stored type first; an operation that stores fewer bits than it
// computes in may use those of one that does not. Between
// two measured working sets the ratio is interpolated: by share_from_memory() where the last cache does not
// hold the larger, else along the logarithm of the working set. Beyond them the nearer one's ratio holds.
// `without` leaves one sample out.
std::optional<CalibratedRatio> calibrated_ratio(const Calibration& calibration, const KernelSample& shape,
                                                const KernelSample* without = nullptr);
// That ratio times the shape's roofline_time(). Empty where there is no ratio.
std::optional<Seconds> calibrated_time(const Calibration& calibration, const KernelSample& shape,
                                       const KernelSample* without = nullptr);

// The time of a collective from samples of its kind among as many ranks. Between two sizes it is linear in
// the logarithms of size and time. Smaller messages take the smallest one's time, larger ones pass at the
// largest one's rate. Empty where fewer than two sizes were timed. `error`: the largest relative error when a
// size between two others is predicted from them.
struct CollectiveTime {
  Seconds time;
  double error = 0;
};
std::optional<CollectiveTime> calibrated_collective(const Calibration& calibration, OpKind kind, int ranks,
                                                    double bytes);

// |predicted / measured - 1| of each sample, predicted from all the others. Kinds with one sample have none.
std::map<std::pair<OpKind, DType>, std::vector<double>> leave_one_out_residuals(
    const Calibration& calibration);
// Sets residual and residual_of from leave_one_out_residuals().
void set_residuals(Calibration& calibration);

Calibration calibration_from_json(std::string_view json, const std::string& file);  // throws PresetError
std::string to_json(const Calibration& calibration);

}  // namespace sim
