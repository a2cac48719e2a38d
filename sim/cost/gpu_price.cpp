#include "sim/cost/gpu_price.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "sim/cost/efficiency.h"
#include "sim/cost/network.h"
#include "sim/json_object.h"
#include "sim/plan/ranks.h"
#include "sim/scenario/preset.h"

namespace sim {
namespace {

// Up to this many queries at once, attention over a cache streams the cache and computes next to nothing.
constexpr std::int64_t kFewQueries = 16;
// The backward pass's share of forward and backward together. It is 2.5 times the work, at 0.63 of the peak
// where forward reaches 0.73 (Dao 2023, arXiv 2307.08691, section 1).
constexpr double kForwardOfPeak = 0.73, kBackwardOfPeak = 0.63, kBackwardWork = 2.5;
constexpr double kBackwardShare =
    (kBackwardWork / kBackwardOfPeak) / (kBackwardWork / kBackwardOfPeak + 1 / kForwardOfPeak);

// The kernels nearest to one that was not timed on a chip, the nearest first. For "" these are the kernels
// that may stand for any other (presets/software.json).
std::vector<std::string> nearest_attention(std::string_view software) {
  static const auto all = [] {
    const std::filesystem::path path = preset_directory() / "software.json";
    const Json json = parse_json(preset_text(path), path.string());
    JsonObject file(json, path.string());
    JsonObject named = file.object("nearest_attention");
    std::map<std::string, std::vector<std::string>, std::less<>> nearest;
    for (const auto& [name, unused] : file.at("nearest_attention").items()) nearest[name] = named.texts(name);
    return nearest;
  }();
  const auto found = all.find(software);
  return found == all.end() ? std::vector<std::string>{} : found->second;
}

AttentionShape attention_shape(const KernelSample& s) {
  return {.batch = static_cast<double>(s.batch),
          .heads = static_cast<double>(s.heads),
          .kv_heads = static_cast<double>(s.kv_heads),
          .head_dim = static_cast<double>(s.head_dim),
          .query_length = static_cast<double>(s.query_length),
          .kv_length = static_cast<double>(s.kv_length),
          .causal = true,
          .dtype = s.dtype};
}

MeasuredTime part_of(const MeasuredTime& time, double share) {
  return {time.seconds * share, time.low * share, time.high * share, Fit::between_shapes};
}

bool is_tabulated(const GpuCalibration& gpu, MeasuredKernel kernel, std::string_view software) {
  return std::ranges::any_of(gpu.kernels, [&](const KernelTable& table) {
    return table.kernel == kernel && table.fit.software == software;
  });
}

// Tables time forward and backward apart, or both together. The named software's table comes first, of either
// sort; then that of the kernel nearest to it. The last resort is the serving engines' forward kernel, or a
// backward kernel that may stand for any other.
std::optional<MeasuredTime> flash_time(const GpuCalibration& gpu, const Hardware& hardware,
                                       const AttentionShape& shape, MeasuredKernel alone,
                                       std::string_view software) {
  const bool backward = alone == MeasuredKernel::attention_backward;
  const auto part_of_both = [&](std::string_view of) -> std::optional<MeasuredTime> {
    const auto both = attention_time(gpu, hardware, MeasuredKernel::attention_forward_backward, shape, of);
    if (!both) return std::nullopt;
    return part_of(*both, backward ? kBackwardShare : 1 - kBackwardShare);
  };
  const auto tabulated = [&](std::string_view of) -> std::optional<MeasuredTime> {
    if (is_tabulated(gpu, alone, of)) return attention_time(gpu, hardware, alone, shape, of);
    if (is_tabulated(gpu, MeasuredKernel::attention_forward_backward, of)) return part_of_both(of);
    return std::nullopt;
  };
  if (auto time = tabulated(software)) return time;
  for (const std::string& like : nearest_attention(software))
    if (auto time = tabulated(like)) return time;
  if (!backward) return attention_time(gpu, hardware, MeasuredKernel::attention_prefill, shape, software);
  for (const std::string& any : nearest_attention(""))
    if (auto time = tabulated(any)) return time;
  return std::nullopt;
}

// The sizes that the kernel multiplies: (M, K) (K, N); for the input's gradient (M, N) (N, K); for the
// weight's (N, M) (M, K).
ProductShape product_shape(OpKind kind, double rows, double cols, double inner, DType dtype) {
  if (info(kind).direction == Direction::input_gradient) return {rows, inner, cols, dtype};
  if (info(kind).direction == Direction::weight_gradient) return {cols, inner, rows, dtype};
  return {rows, cols, inner, dtype};
}

// With few rows, weights in fewer bits than the arithmetic take the time in which memory delivers them. This
// is the table's time for a product of one row with as many bytes (small matrices are read more slowly per
// byte), but no less than the arithmetic takes. With many rows arithmetic decides, whatever the stored type.
// Kernels that expand weights on the way may reach only a share of the bandwidth (software.narrow_weights).
std::optional<MeasuredTime> forward_product_time(const GpuCalibration& gpu, const Hardware& hardware,
                                                 const KernelSample& s, const KernelSoftware& software) {
  const double cols = static_cast<double>(s.cols), inner = static_cast<double>(s.inner);
  const auto time =
      product_time(gpu, hardware, {static_cast<double>(s.rows), cols, inner, s.dtype}, software.products);
  const double whole = cols * inner * static_cast<double>(bits(s.dtype)) / 8;
  const double touched = static_cast<double>(s.bytes.value);
  if (!time || touched >= whole) return time;
  const auto as_many_bytes =
      product_time(gpu, hardware, {1, cols * touched / whole, inner, s.dtype}, software.products);
  if (!as_many_bytes) return time;
  const Seconds streamed = gpu.launch + (as_many_bytes->seconds - gpu.launch) * (1 / software.narrow_weights);
  const Seconds computed = gpu.launch + s.flops / hardware.peak_for(s.dtype);
  const Seconds narrow = std::min(time->seconds, std::max(streamed, computed));
  return part_of(*time, narrow / time->seconds);
}

bool decodes(const KernelSample& s) {
  return s.kind == OpKind::attention_cached && s.query_length <= kFewQueries;
}

// Decoding streams the cache. Tables hold it in 16 bits; fewer bits save the time of the bytes saved.
std::optional<MeasuredTime> decode_time(const GpuCalibration& gpu, const KernelSample& s,
                                        const Hardware& hardware, std::string_view software) {
  // FlashAttention streams a long cache at 0.93 of an H100's bandwidth and 0.82 of an A100's (tables of
  // aiconfigurator).
  constexpr double kStreamed = 0.93, kTabulatedBytes = 2;
  const auto time =
      attention_time(gpu, hardware, MeasuredKernel::attention_decode, attention_shape(s), software);
  if (!time) return time;
  const auto elements = [&](std::int64_t tokens, std::int64_t heads) {
    return 2 * static_cast<double>(s.batch * tokens) * static_cast<double>(heads * s.head_dim);
  };
  const double whole = elements(s.kv_length, s.kv_heads) + elements(s.query_length, s.heads);
  const double saved = std::max(0.0, kTabulatedBytes * whole - static_cast<double>(s.bytes.value));
  const Seconds faster = std::min(Seconds{saved / (hardware.memory_bandwidth.value * kStreamed)},
                                  std::max(Seconds{}, time->seconds - gpu.launch));
  return part_of(*time, (time->seconds - faster) / time->seconds);
}

// The products of all experts run as one kernel over all their tiles: one product of all rows, where the rows
// of each expert are padded to whole tiles. DeepGEMM on H800 (github.com/deepseek-ai/DeepGEMM, README)
// reaches 1288 TFLOPS for 8 experts of 4096 rows, 1304 for one; 1093 and 1025 in the other shape it prints.
// Weights are read at the rate of datasheet_efficiency().
std::optional<MeasuredTime> grouped_product_time(const GpuCalibration& gpu, const Operation& op,
                                                 const KernelSample& s, const Hardware& hardware,
                                                 const Variables& v, const Work& work) {
  constexpr double kTile = 128;  // rows of a thread block's output tile
  const double hit = std::max(1.0, experts_hit(op, v)), rows = static_cast<double>(s.rows);
  const double padded = hit * kTile * std::ceil(rows / hit / kTile);
  const double cols = static_cast<double>(s.cols), inner = static_cast<double>(s.inner);
  // For the weights' gradients the sum runs over rows, expert by expert.
  const bool of_weight = info(op.kind).direction == Direction::weight_gradient;
  const ProductShape shape = of_weight ? product_shape(op.kind, rows / hit, hit * cols, inner, s.dtype)
                                       : product_shape(op.kind, padded, cols, inner, s.dtype);
  auto time = product_time(gpu, hardware, shape);
  if (!time) return std::nullopt;
  const Seconds streamed =
      gpu.launch + work.memory() / (hardware.memory_bandwidth * datasheet_efficiency(s).memory);
  if (streamed > time->seconds) {
    const double error = datasheet_efficiency(s).error;
    return MeasuredTime{streamed, streamed * (1 / (1 + error)), streamed * (1 + error), Fit::formula};
  }
  time->fit = Fit::between_shapes;
  return time;
}

// Each matrix and iteration has three products, each of them a kernel (plan/measure.cpp): X X^T, A A, and
// their sum times X.
std::optional<MeasuredTime> newton_schulz_time(const GpuCalibration& gpu, const Operation& op,
                                               const KernelSample& s, const Hardware& hardware) {
  const double a = static_cast<double>(std::min(s.rows, s.cols));
  const double b = static_cast<double>(std::max(s.rows, s.cols));
  MeasuredTime sum{{}, {}, {}, Fit::between_shapes};
  for (const ProductShape& shape : {ProductShape{a, a, b, s.dtype}, {a, a, a, s.dtype}, {a, b, a, s.dtype}}) {
    const auto time = product_time(gpu, hardware, shape);
    if (!time) return std::nullopt;
    const double times = static_cast<double>(op.dims.groups) * kNewtonSchulzIterations;
    sum.seconds += time->seconds * times;
    sum.low += time->low * times;
    sum.high += time->high * times;
  }
  return sum;
}

std::optional<MeasuredTime> kernel_time(const GpuCalibration& gpu, const Operation& op, const KernelSample& s,
                                        const Hardware& hardware, const Variables& v, const Work& work,
                                        const KernelSoftware& software) {
  const double rows = static_cast<double>(s.rows), cols = static_cast<double>(s.cols),
               inner = static_cast<double>(s.inner);
  const bool backward = is_backward(s.kind);
  switch (info(s.kind).curve) {
    case Curve::product:
      if (!backward) return forward_product_time(gpu, hardware, s, software);
      return product_time(gpu, hardware, product_shape(s.kind, rows, cols, inner, s.dtype));
    case Curve::cached_attention:  // for a prompt this is flash attention
      if (decodes(s)) return decode_time(gpu, s, hardware, software.attention);
      [[fallthrough]];
    case Curve::flash_attention:
      return flash_time(gpu, hardware, attention_shape(s),
                        backward ? MeasuredKernel::attention_backward : MeasuredKernel::attention_forward,
                        software.attention);
    case Curve::grouped_product:
      return grouped_product_time(gpu, op, s, hardware, v, work);
    case Curve::newton_schulz:
      return newton_schulz_time(gpu, op, s, hardware);
    case Curve::standard_attention:
    case Curve::latent_cached_attention:
    case Curve::scan:
    case Curve::streamed:
    case Curve::scattered:
    case Curve::network:
      break;
  }
  return std::nullopt;
}

// The pairs that an attention operation computes, as a share of those of the attention that gave its time.
double share_of_pairs(const Operation& op, const Variables& v) {
  return attended_pairs(op, v) / visible_pairs(whole_attention(op, v));
}

Price as_price(const MeasuredTime& time, Bound bound) {
  const bool near = time.fit == Fit::measured_shape;
  return {time.seconds, time.low, time.high, bound, near ? Provenance::calibrated : Provenance::interpolated};
}

std::optional<Price> collective_price(const GpuCalibration& gpu, CollectiveOperation operation,
                                      const Work& work, const Dims& dims, const Hardware& hardware,
                                      const Group& group, std::string_view software) {
  if (group.size <= 1) return std::nullopt;
  CollectiveShape shape{.operation = operation, .bytes = 0, .ranks = group.size, .ranks_per_node = 1};
  shape.ranks_per_node = ranks_in_node(group, hardware.devices_per_node);
  shape.bytes = static_cast<double>(work.network.value) / bus_factor(operation, group.size);
  shape.crossing = crossing_share(dims, group, hardware);
  const auto time = collective_time(gpu, hardware, shape, software);
  if (!time) return std::nullopt;
  return as_price(*time, Bound::network);
}

}  // namespace

std::optional<Price> gpu_price(const GpuCalibration& gpu, const Work& work, const Operation& op,
                               const Variables& v, const Hardware& hardware, const Group* group,
                               const KernelSoftware& software) {
  if (const auto operation = info(op.kind).collective)
    return group ? collective_price(gpu, *operation, work, op.dims, hardware, *group, software.collectives)
                 : std::nullopt;
  KernelSample shape = kernel_shape(op, v, work);
  // Decoding streams only the keys that its queries see.
  if (decodes(shape)) {
    const double queries = static_cast<double>(v.batch * v.query_length);
    shape.kv_length =
        std::llround(attended_pairs(op, v) / queries + static_cast<double>(v.query_length - 1) / 2);
  }
  auto time = kernel_time(gpu, op, shape, hardware, v, work, software);
  if (!time) return std::nullopt;
  // A part of attention runs at the speed of the whole, so its time shrinks with its share of the pairs.
  const bool of_pairs_alone = is_attention(op.kind) && !decodes(shape);
  if (const double left = of_pairs_alone ? share_of_pairs(op, bound_to(op, v)) : 1; left != 1) {
    const auto of_pairs = [&](Seconds t) {
      const Seconds launch = std::min(t, gpu.launch);
      return launch + (t - launch) * left;
    };
    *time = {of_pairs(time->seconds), of_pairs(time->low), of_pairs(time->high), Fit::between_shapes};
  }
  const Seconds compute = work.flops / hardware.peak_for(op.dtype);
  const Seconds memory = work.memory() / hardware.memory_bandwidth;
  const bool launched = gpu.launch > compute && gpu.launch > memory;
  return as_price(*time, launched ? Bound::launch : compute > memory ? Bound::compute : Bound::memory);
}

}  // namespace sim
