#include "sim/cost/gpu_calibration.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "sim/cost/network.h"

namespace sim {
namespace {

// The error of using the table of one software for another that no table names. It is about the 90th
// percentile over the published tables with their software's names taken away: products of one A100 by two
// engines (0.13); attention of FlashAttention 2 and 3, cuDNN and serving engines (0.45); NCCL by nccl-tests
// and by torch.distributed in one node (0.55).
constexpr double kOtherProduct = 0.15, kOtherAttention = 0.5, kOtherCollective = 0.6;
// Between group sizes, or beyond the sizes measured, a curve is less certain than at its points.
constexpr double kBetweenSizes = 1.5;

double log_band(double fraction) {
  return std::log1p(fraction);
}

MeasuredTime with_band(Seconds t, const std::vector<ErrorBand>& bands, double wider, double other, Fit fit) {
  MeasuredTime time{t, t, t, fit};
  for (const ErrorBand& band : bands) {
    if (t >= band.below && &band != &bands.back()) continue;
    // Independent errors add in quadrature.
    const double beyond = std::log1p(other);
    time.low = t * std::exp(-std::hypot(wider * log_band(band.low), beyond));
    time.high = t * std::exp(std::hypot(wider * log_band(band.high), beyond));
    break;
  }
  return time;
}

std::string words(std::string_view text) {
  std::string letters;
  for (const char c : text)
    if (std::isalpha(static_cast<unsigned char>(c)))
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!letters.empty())
      break;
  return letters;
}

// 2: the software named, in whatever build; 1: another version of it; 0: another software.
int likeness(std::string_view named, std::string_view table) {
  if (named.empty()) return 0;
  if (named == table || named.starts_with(std::string(table) + " (")) return 2;
  return words(named) == words(table) ? 1 : 0;
}

DType tabulated(DType t) {
  return t == DType::fp16 ? DType::bf16 : t;
}

double distance_to_axis(const RatioGrid& grid, std::size_t axis, double value) {
  double nearest = std::abs(std::log(value / grid.axes()[axis].values.front()));
  for (const double node : grid.axes()[axis].values)
    nearest = std::min(nearest, std::abs(std::log(value / node)));
  return nearest;
}

// The table that best matches the request: by software, then by the nearest value on the given axis (some
// tables hold only one grouping of heads), then the first.
struct Choice {
  const KernelTable* table = nullptr;
  int likeness = -1;
  std::size_t index = 0;  // of the table
};

Choice choose(const GpuCalibration& gpu, MeasuredKernel kernel, DType dtype, std::string_view software,
              std::size_t axis = RatioGrid::kMostAxes, double value = 1) {
  Choice best;
  double best_distance = 0;
  for (const KernelTable& table : gpu.kernels) {
    if (table.kernel != kernel || table.dtype != tabulated(dtype)) continue;
    const int like = likeness(software, table.fit.software);
    if (table.only_where_named && like < 2) continue;
    const double distance = axis < table.grid.axes().size() ? distance_to_axis(table.grid, axis, value) : 0;
    if (!best.table || like > best.likeness || (like == best.likeness && distance < best_distance)) {
      best = {&table, like, static_cast<std::size_t>(&table - gpu.kernels.data())};
      best_distance = distance;
    }
  }
  return best;
}

Seconds analytic_time(Seconds launch, const Hardware& hardware, DType dtype, double flops, double bytes) {
  return launch +
         Seconds{std::hypot(flops / hardware.peak_for(dtype).value, bytes / hardware.memory_bandwidth.value)};
}

MeasuredTime read(const Choice& choice, Seconds analytic, const RatioGrid::Point& point, double other) {
  const KernelTable& table = *choice.table;
  const RatioGrid::Reading reading = table.grid.at(point);
  const Fit fit = choice.likeness < 2 ? Fit::other_software
                  : reading.on_node   ? Fit::measured_shape
                                      : Fit::between_shapes;
  const double wider =
      reading.on_node ? 1 : table.between_nodes_factor * (reading.inside ? 1 : kBetweenSizes);
  MeasuredTime time = with_band(analytic * (table.factor * std::exp(reading.log_ratio)), table.bands, wider,
                                choice.likeness < 2 ? other : 0, fit);
  time.table = choice.index;
  return time;
}

double pairs(const AttentionShape& s) {
  return s.causal ? s.query_length * (s.kv_length - s.query_length / 2) : s.query_length * s.kv_length;
}

double attention_bytes(MeasuredKernel kernel, const AttentionShape& s) {
  constexpr double kElement = 2;
  const double queries = s.batch * s.heads * s.query_length * s.head_dim;
  const double keys = s.batch * s.kv_heads * s.kv_length * s.head_dim;
  switch (kernel) {
    case MeasuredKernel::attention_decode:
      return kElement * 2 * keys;
    case MeasuredKernel::attention_backward:  // and the gradients
      return kElement * 4 * (queries + keys);
    case MeasuredKernel::attention_forward_backward:
      return kElement * 6 * (queries + keys);
    default:
      return kElement * 2 * (queries + keys);
  }
}

Seconds curve_time(const CollectiveCurve& curve, double bytes, RatioGrid::Reading& reading) {
  const double moved = bus_factor(curve.operation, curve.ranks) * bytes;
  const Seconds t = curve.latency + Seconds{moved / curve.bus.value + curve.ramp * std::sqrt(moved)};
  reading = curve.grid.at({bytes});
  return t * (curve.factor * std::exp(reading.log_ratio));
}

struct CurvesAround {
  const CollectiveCurve *below = nullptr, *above = nullptr;  // nearest by ranks; one curve where ranks match
  int likeness = -1;
};

CurvesAround around(const GpuCalibration& gpu, const CollectiveShape& shape, bool one_node,
                    std::string_view software) {
  const CollectiveCurve* chosen = nullptr;
  int best = -1;
  bool best_exact = false;
  for (const CollectiveCurve& curve : gpu.collectives) {
    if (curve.operation != shape.operation || (curve.nodes == 1) != one_node) continue;
    const int like = likeness(software, curve.fit.software);
    const bool exact = curve.ranks == shape.ranks;
    if (!chosen || like > best || (like == best && exact && !best_exact)) {
      chosen = &curve;
      best = like;
      best_exact = exact;
    }
  }
  CurvesAround found{.likeness = best};
  if (!chosen) return found;
  for (const CollectiveCurve& curve : gpu.collectives) {
    if (curve.operation != shape.operation || (curve.nodes == 1) != one_node ||
        curve.fit.software != chosen->fit.software)
      continue;
    if (curve.ranks <= shape.ranks && (!found.below || curve.ranks > found.below->ranks))
      found.below = &curve;
    if (curve.ranks >= shape.ranks && (!found.above || curve.ranks < found.above->ranks))
      found.above = &curve;
  }
  if (!found.below) found.below = found.above;
  if (!found.above) found.above = found.below;
  return found;
}

}  // namespace

double bus_factor(CollectiveOperation operation, int ranks) {
  const BusShare share = bus_share(operation, ranks);
  return static_cast<double>(share.parts) / static_cast<double>(share.of);
}

Flops attention_flops(MeasuredKernel kernel, const AttentionShape& s) {
  const double forward = 4 * s.batch * s.heads * s.head_dim * pairs(s);
  if (kernel == MeasuredKernel::attention_backward) return {2.5 * forward};
  return {kernel == MeasuredKernel::attention_forward_backward ? 3.5 * forward : forward};
}

std::optional<MeasuredTime> product_time(const GpuCalibration& gpu, const Hardware& hardware,
                                         const ProductShape& s, std::string_view software) {
  const Choice choice = choose(gpu, MeasuredKernel::matmul, s.dtype, software);
  if (!choice.table || !hardware.has_peak_for(s.dtype)) return std::nullopt;
  const double operand = static_cast<double>(bits(s.dtype)) / 8, result = 2;
  const double bytes = operand * s.k * (s.m + s.n) + result * s.m * s.n;
  const Seconds analytic = analytic_time(gpu.launch, hardware, s.dtype, 2 * s.m * s.n * s.k, bytes);
  const RatioGrid::Point point{s.n, s.k, s.m};
  const MeasuredTime time = read(choice, analytic, point, kOtherProduct);
  if (s.dtype != DType::fp8 || choice.likeness > 0) return time;
  // Engines also time the quantization of the activations. Without it, the ratio of a product to its ideal is
  // that of bf16. Other software lies between these two.
  const Choice alone = choose(gpu, MeasuredKernel::matmul, DType::bf16, software);
  if (!alone.table) return time;
  const MeasuredTime bare = read(alone, analytic, point, kOtherProduct);
  return MeasuredTime{{std::sqrt(time.seconds.value * bare.seconds.value)},
                      std::min(time.low, bare.low),
                      std::max(time.high, bare.high),
                      Fit::other_software};
}

std::optional<MeasuredTime> attention_time(const GpuCalibration& gpu, const Hardware& hardware,
                                           MeasuredKernel kernel, const AttentionShape& s,
                                           std::string_view software) {
  const bool served =
      kernel == MeasuredKernel::attention_prefill || kernel == MeasuredKernel::attention_decode;
  const double group = s.heads / s.kv_heads;
  const double split_by = served ? group : s.head_dim;
  const Choice choice = choose(gpu, kernel, s.dtype, software, served ? 2 : 0, split_by);
  if (!choice.table || !hardware.has_peak_for(s.dtype)) return std::nullopt;
  const Seconds analytic = analytic_time(gpu.launch, hardware, s.dtype, attention_flops(kernel, s).value,
                                         attention_bytes(kernel, s));
  RatioGrid::Point point{s.head_dim, s.query_length, s.causal ? 2.0 : 1.0};
  if (kernel == MeasuredKernel::attention_prefill) point = {s.batch * s.heads, s.query_length, group};
  if (kernel == MeasuredKernel::attention_decode) point = {s.batch * s.kv_heads, s.kv_length, group};
  return read(choice, analytic, point, kOtherAttention);
}

std::optional<MeasuredTime> collective_time(const GpuCalibration& gpu, const Hardware& hardware,
                                            const CollectiveShape& s, std::string_view software) {
  const bool one_node = s.ranks <= s.ranks_per_node;
  // Curves across nodes count only for the software that is named.
  const CurvesAround curves =
      one_node || !software.empty() ? around(gpu, s, one_node, software) : CurvesAround{};
  if (curves.likeness == 2 || (one_node && curves.below)) {
    RatioGrid::Reading low, high;
    Seconds t = curve_time(*curves.below, s.bytes, low);
    const bool exact = curves.below->ranks == s.ranks;
    if (curves.above != curves.below) {
      const double share = std::log(static_cast<double>(s.ranks) / curves.below->ranks) /
                           std::log(static_cast<double>(curves.above->ranks) / curves.below->ranks);
      const Seconds above = curve_time(*curves.above, s.bytes, high);
      t = Seconds{std::exp((1 - share) * std::log(t.value) + share * std::log(above.value))};
    }
    const Fit fit = curves.likeness < 2    ? Fit::other_software
                    : exact && low.on_node ? Fit::measured_shape
                                           : Fit::between_shapes;
    MeasuredTime time = with_band(t, curves.below->bands, exact && low.inside ? 1 : kBetweenSizes,
                                  curves.likeness < 2 ? kOtherCollective : 0, fit);
    if (exact)
      time.table = gpu.kernels.size() + static_cast<std::size_t>(curves.below - gpu.collectives.data());
    return time;
  }
  if (one_node || hardware.network_link.value <= 0) return std::nullopt;
  // A ring inside the node reaches the bus rate of the largest group measured there.
  BytesPerSecond node_bus = hardware.node_link;
  int largest = 0;
  for (const CollectiveCurve& curve : gpu.collectives)
    if (curve.operation == s.operation && curve.nodes == 1 && curve.ranks > largest) {
      largest = curve.ranks;
      node_bus = curve.bus;
    }
  Seconds t = collective_by_formula(hardware, node_bus, s);
  // Formulas of several nodes leave out the delays of the ranks of one node: no bus is faster across nodes.
  const CollectiveShape inside{s.operation, s.bytes, s.ranks_per_node, s.ranks_per_node};
  if (s.ranks_per_node > 1 && s.crossing >= 1)
    if (const auto in_node = collective_time(gpu, hardware, inside, software))
      t = std::max(t, in_node->seconds *
                          (bus_factor(s.operation, s.ranks) / bus_factor(s.operation, s.ranks_per_node)));
  return MeasuredTime{t, t * (1 / (1 + kFormulaError)), t * (1 + kFormulaError), Fit::formula};
}

}  // namespace sim
