// Published measurements of a GPU's kernels and collectives, on grids of shapes: the ratio of measured to
// analytic time (presets/calibrations/README.md). The analytic time of a kernel is
//   launch + sqrt((flops / peak)^2 + (bytes / bandwidth)^2)
// and of a collective over S bytes, of which factor(n) S pass each rank's link,
//   a + factor S / B + c sqrt(factor S).
// Peaks and bandwidths are the hardware's, so one chip's tables serve another's memory or clock.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/ratio_grid.h"
#include "sim/dtype.h"
#include "sim/enum_names.h"
#include "sim/plan/kinds.h"
#include "sim/scenario/hardware.h"
#include "sim/units.h"

namespace sim {

enum class MeasuredKernel {
  matmul,             // {n, k, m}: out (m, n), weight (n, k)
  attention_prefill,  // {heads: sequences x heads, length, group}: causal, as serving engines run it
  attention_decode,   // {kv_heads: sequences x key-value heads, length, group}: one query a sequence
  // {head_dim, length, causal: 1 all pairs, 2 half of them}: as many key-value heads as heads
  attention_forward,
  attention_backward,
  attention_forward_backward,
};

// Bytes that pass a rank's link for each byte of the message (nccl-tests, PERFORMANCE.md): of all-gather and
// reduce-scatter the message is the gathered tensor.
double bus_factor(CollectiveOperation operation, int ranks);

// 90 % of measured times lie between (1 + low) and (1 + high) times the predicted one; from rows held out.
struct ErrorBand {
  Seconds below;  // the band is for predicted times below this; the last one also for all longer
  double low = 0, high = 0;
};

// Measurements that were fitted together: a kind of kernel timed here, or a published table.
struct FittedRows {
  std::string what;      // "matmul, bf16"; "all_reduce, 8 ranks on 1 node"
  std::string software;  // whose kernel or library: "TRTLLM 1.3.0rc10", "FlashAttention3", "NCCL 2.29.2"
  std::string source;    // where the measurements are
  std::string hardware;  // measured on, where it is another preset's; empty: the one asked for
  std::int64_t rows = 0;
  double median = 0, p90 = 0;              // of |predicted / measured - 1|, each row held out
  std::optional<double> bias = {};         // mean of predicted / measured - 1
  std::optional<double> inside_band = {};  // share of rows in the band that is promised for 90 %
};

struct KernelTable {
  MeasuredKernel kernel{};
  FittedRows fit;
  DType dtype{};
  bool only_where_named = false;  // doubtful measurements: used only where this software is named
  double between_nodes_factor = 1;
  std::vector<ErrorBand> bands;
  RatioGrid grid;
  double factor = 1;  // multiplies the grid's times: from a refit (cost/refit.h)
};

struct CollectiveCurve {
  CollectiveOperation operation{};
  FittedRows fit;
  int nodes = 1, ranks = 1;
  Seconds latency;     // a
  BytesPerSecond bus;  // B
  double ramp = 0;     // c, seconds per square root of a byte
  std::vector<ErrorBand> bands;
  RatioGrid grid;     // {bytes}
  double factor = 1;  // as KernelTable::factor
};

struct GpuCalibration {
  Seconds launch;
  std::vector<KernelTable> kernels;  // of several for one kernel, the first counts where no software is named
  std::vector<CollectiveCurve> collectives;
};

enum class Fit { measured_shape, between_shapes, other_software, formula };  // how near the tables come

struct MeasuredTime {
  Seconds seconds, low, high;  // 90 % band
  Fit fit{};
  // Index of the table that the time was read from, in the order of published_fits() (cost/fits.h): kernels,
  // then collectives.
  std::optional<std::size_t> table{};
};

struct ProductShape {
  double m = 0, n = 0, k = 0;
  DType dtype{};
};

struct AttentionShape {
  double batch = 0, heads = 0, kv_heads = 0, head_dim = 0, query_length = 0, kv_length = 0;
  bool causal = true;
  DType dtype{};
};

struct CollectiveShape {
  CollectiveOperation operation{};
  double bytes = 0;  // of the message
  int ranks = 1, ranks_per_node = 1;
  // For an all-to-all: traffic that crosses nodes, over that if each copy went straight to its rank
  // (crossing_share() of cost/network.h). Below 1, ranks of a node pass on to each other what has crossed.
  double crossing = 1;
};

// Each is empty where no table has the kernel and the type. Without `software` the table that is read counts
// as other software's, since it is not known what will run.
std::optional<MeasuredTime> product_time(const GpuCalibration& gpu, const Hardware& hardware,
                                         const ProductShape& shape, std::string_view software = {});
std::optional<MeasuredTime> attention_time(const GpuCalibration& gpu, const Hardware& hardware,
                                           MeasuredKernel kernel, const AttentionShape& shape,
                                           std::string_view software = {});
// On more nodes than were measured, the formulas of sim/cost/network.h give the time.
std::optional<MeasuredTime> collective_time(const GpuCalibration& gpu, const Hardware& hardware,
                                            const CollectiveShape& shape, std::string_view software = {});

// FLOPs of attention by the papers' convention: 4 x pairs x head size for each head. Causal attention has
// half the pairs, and backward takes 2.5 times the forward's FLOPs.
Flops attention_flops(MeasuredKernel kernel, const AttentionShape& shape);

// presets/calibrations/NAME.json; empty where there is none. Throws PresetError.
std::optional<GpuCalibration> load_gpu_calibration(const std::string& hardware);

}  // namespace sim
