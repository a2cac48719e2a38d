#include "sim/cost/engine_price.h"

#include <algorithm>
#include <cmath>

#include "sim/cost/efficiency.h"
#include "sim/plan/ranks.h"

namespace sim {
namespace {

// Operands of up to half the last-level cache stay in it from one kernel to the next. They move at twice the
// rate of memory.
constexpr double kResidentShare = 0.5, kResidentRate = 2;
// Scores pass through memory in some attention (FasterTransformer without its fused kernel,
// BaseAttentionLayer.h). They are fp32, and are written, masked and normalised, and read: 12 bytes each.
constexpr double kBytesOfScore = 12;
// With one thread block for each head and sequence, two blocks a multiprocessor fill the chip.
constexpr double kBlocksToFill = 2;
// Rate of the last-level cache over that of memory. An A100's cache delivers 5120 bytes a clock, and kernels
// reach two thirds of this.
constexpr double kCacheOverMemory = 2.4;
// In a segmented radix sort (cub) one block sorts a row: six passes of some 2 ns a key. An estimate.
constexpr Seconds kSortOfKey = us(0.012);
// The products of all experts run in one Triton kernel. The rows of each expert that is hit are padded to
// tiles of 16 rows. On H100 (tables of github.com/ai-dynamo/aiconfigurator) the kernel reaches 0.38 of the
// peak for 1024 tokens of 2 of 8 experts of Mixtral's shape, and 0.15, 0.37, 0.43 for 1, 4, 16 thousand
// tokens of 8 of 128 small ones. With the efficiencies of cost/efficiency.cpp this model gives 0.40, and
// 0.17, 0.41, 0.50. Kernels for fp8 products, and for weights that are expanded on the way, use the 64-row
// tiles of Hopper's warp-group products.
constexpr double kRowsOfTile = 16, kRowsOfGroupTile = 64;
// How far single kernels lie from the profile's shares of the bandwidth for narrow weights.
constexpr double kNarrowError = 0.2;
// Share of a product's rate that is left where 4-bit weights are expanded on the way, as in Triton's MXFP4
// kernels on Hopper. An estimate.
constexpr double kGroupedExpanded = 0.5;
// The error where the profile's share of the peak decides. Clocks under load differ by machine, and they
// depend on the values of the operands.
constexpr double kPeakShareError = 0.15;

class EngineKernel {
 public:
  EngineKernel(const Plan& plan, const Block& block, const Operation& op, const Variables& v,
               const Work& work, const Hardware& hardware, const Calibration* calibration, const Group* group)
      : plan_(plan),
        serving_(*plan.scenario.implementation.serving),
        block_(block),
        op_(op),
        v_(v),
        work_(work),
        hardware_(hardware),
        calibration_(calibration),
        group_(group) {
    // Attention works in 16 bits even where products work in fp8.
    if (is_attention(op.kind) && op_.dtype == DType::fp8) op_.dtype = DType::bf16;
  }

  Price price() const {
    const CostKind kind = cost_kind(op_.kind);
    if (kind == CostKind::small_kernels) return small_kernels();
    const Price p = kind == CostKind::products    ? product()
                    : kind == CostKind::attention ? attention()
                                                  : collective();
    return p + with_error(serving_.gap, kEstimateError, p.bound);
  }

 private:
  bool decodes() const { return v_.query_length == 1; }
  Seconds launch() const { return calibration_ ? calibration_->launch : hardware_.launch; }
  FlopsPerSecond peak() const { return hardware_.peak_for(op_.dtype); }
  std::int64_t stored_bits() const { return bits(plan_.buffer(operand(op_, Role::weight).buffer).dtype); }
  Price tabulated(const Variables& v, const KernelSoftware& software) const {
    return sim::price(work_, op_, v, hardware_, calibration_, group_, {}, software);
  }

  Price product() const {
    if (op_.dims.groups > 0) return grouped_product();
    KernelSoftware software{.products = serving_.product_tables};
    constexpr std::int64_t kFourBits = 4;
    if (stored_bits() < bits(op_.dtype))
      software.narrow_weights =
          stored_bits() > kFourBits ? serving_.int8_efficiency : serving_.int4_efficiency;
    Price p = sim::price(work_, op_, v_, hardware_, calibration_, nullptr, {}, software);
    if (software.narrow_weights < 1)
      p = with_error(p.seconds, std::hypot(p.high / p.seconds - 1, kNarrowError), p.bound, p.provenance);
    const Seconds least = launch() + work_.flops / (peak() * serving_.product_peak_share);
    if (p.seconds < least) p = with_error(least, kPeakShareError, Bound::compute, p.provenance);
    return p;
  }

  Price grouped_product() const {
    const double rows = work_.flops.value / (2 * static_cast<double>(op_.dims.cols.value(v_)) *
                                             static_cast<double>(op_.dims.inner.value(v_)));
    const double of_expert = rows / std::max(1.0, experts_hit(op_, v_));
    const bool narrow = stored_bits() < bits(op_.dtype);
    const bool warp_groups = hardware_.has_peak_for(DType::fp8) && (narrow || op_.dtype == DType::fp8);
    const double tile = warp_groups ? kRowsOfGroupTile : kRowsOfTile;
    const Efficiency e = datasheet_efficiency(kernel_shape(op_, v_, work_));
    const double share = e.compute * (narrow ? kGroupedExpanded : 1) * of_expert / (of_expert + tile);
    // With a capacity below half a row there is nothing to compute.
    const Seconds compute = rows > 0 ? work_.flops / (peak() * share) : Seconds{};
    const Seconds memory = work_.memory() / (hardware_.memory_bandwidth * e.memory);
    return with_error(launch() + Seconds{std::hypot(compute.value, memory.value)}, e.error,
                      bound_of(launch(), compute, memory));
  }

  Price attention() const {
    const KernelSoftware software{.attention = serving_.attention_tables};
    if (!decodes()) {
      if (serving_.standard_prefill_attention) return standard_attention();
      return (tabulated(v_, software) + launch() * -1) * fp8_prompt_ratio() + launch();
    }
    if (serving_.decode_attention == DecodeAttention::block_per_head && op_.kind == OpKind::attention_cached)
      return block_per_head();
    // A layer with a window keeps at most the window. With chunks, a sequence sees at most one chunk.
    Variables v = v_;
    if (const std::int64_t reach = std::max(op_.dims.window, op_.dims.chunk); reach > 0)
      v.kv_length = std::min(v.kv_length, reach);
    return tabulated(v, software);
  }

  Price standard_attention() const {
    KernelSample standard;
    standard.kind = OpKind::attention_standard;
    const Efficiency e = datasheet_efficiency(standard);
    const double square = static_cast<double>(v_.batch * op_.dims.heads) *
                          static_cast<double>(v_.query_length) * static_cast<double>(v_.kv_length);
    const Seconds memory{kBytesOfScore * square / (hardware_.memory_bandwidth.value * e.memory)};
    const Seconds compute{4 * square * static_cast<double>(op_.dims.head_dim) / (peak().value * e.compute)};
    return with_error(memory + compute, e.error, bound_of({}, compute, memory));
  }

  // TensorRT-LLM's fused attention of prompts works in fp8 where the cache is fp8 (docs,
  // use_fp8_context_fmha). The speed-up is taken from the chip's first table of attention.
  double fp8_prompt_ratio() const {
    const bool narrow = plan_.scenario.workload.kv_dtype == DType::fp8 && serving_.fp8_cache_with_fp8_weights;
    if (!narrow || !hardware_.has_peak_for(DType::fp8) || !calibration_ || !calibration_->gpu) return 1;
    const auto d = [](std::int64_t n) { return static_cast<double>(n); };
    AttentionShape shape{.batch = d(v_.batch),
                         .heads = d(op_.dims.heads),
                         .kv_heads = d(op_.dims.kv_heads),
                         .head_dim = d(op_.dims.head_dim),
                         .query_length = d(v_.query_length),
                         .kv_length = d(v_.kv_length),
                         .dtype = DType::bf16};
    const auto time = [&] {
      return attention_time(*calibration_->gpu, hardware_, MeasuredKernel::attention_forward, shape);
    };
    const auto wide = time();
    shape.dtype = DType::fp8;
    const auto narrowed = time();
    return wide && narrowed ? std::min(1.0, narrowed->seconds / wide->seconds) : 1;
  }

  // Each head reads the keys and values of its group. The first reads from memory, the others from the cache.
  Price block_per_head() const {
    const double heads = static_cast<double>(op_.dims.heads),
                 kv_heads = static_cast<double>(op_.dims.kv_heads);
    const double read = std::max(1.0, heads / kv_heads / kCacheOverMemory);
    const double blocks = static_cast<double>(v_.batch) * heads;
    const double filled = std::min(1.0, blocks / (kBlocksToFill * hardware_.multiprocessors));
    const double rate =
        hardware_.memory_bandwidth.value * serving_.decode_attention_efficiency * filled / read;
    const Seconds memory{static_cast<double>(work_.memory().value) / rate};
    KernelSample shape;
    shape.kind = op_.kind;
    return with_error(serving_.decode_attention_latency + memory, datasheet_efficiency(shape).error,
                      Bound::memory);
  }

  Price collective() const {
    if (!group_) return tabulated(v_, {});
    // Between nodes NCCL's formulas apply, since the tables' series across nodes name no network.
    const bool in_node = ranks_in_node(*group_, hardware_.devices_per_node) == group_->size;
    KernelSoftware software;
    if (in_node) software.collectives = serving_.collective_tables;
    for (const auto& own : serving_.custom_all_reduce)
      if (op_.kind == OpKind::all_reduce && own.ranks == group_->size && message() <= own.up_to)
        software.collectives = own.tables;
    return tabulated(v_, software);
  }
  Bytes message() const { return plan_.buffer(op_.operands[0].buffer).bytes(v_); }

  // A layer has as many small kernels as the profile says, whatever operations the plan has. Each small
  // operation of the plan gets an equal part of their fixed time.
  Price small_kernels() const {
    double kernels = 1, bytes = static_cast<double>(work_.memory().value);
    Seconds sorting;
    if (op_.kind == OpKind::sample) {
      const double logits =
          static_cast<double>(op_.dims.rows.value(v_)) * static_cast<double>(op_.dims.vocab);
      kernels = serving_.sampling_kernels;
      bytes = serving_.sampling_passes * kBytesOfLogit * logits;
      if (serving_.sorts_vocabulary) sorting = sorting_time();
    } else {
      const double resident = kResidentShare * static_cast<double>(hardware_.last_level_cache.value);
      if (bytes < resident) bytes /= kResidentRate;
    }
    if (const Operation* attention = attention_of_layer()) {
      const double parts = small_operations();
      kernels = (decodes() ? serving_.decode_kernels : serving_.prefill_kernels);
      if (has_experts()) kernels += serving_.expert_kernels;
      kernels /= parts;
      if (!decodes())
        bytes += 2 * serving_.prefill_copies / parts *
                 static_cast<double>(v_.batch * v_.query_length * attention->dims.heads *
                                     attention->dims.head_dim);
    }
    const Seconds fixed = (serving_.kernel_time + serving_.gap) * kernels;
    const double rate =
        hardware_.memory_bandwidth.value * datasheet_efficiency(kernel_shape(op_, v_, work_)).memory;
    return with_error(fixed + Seconds{bytes / rate} + sorting, kEstimateError,
                      bound_of(fixed, sorting, {bytes / rate}));
  }

  // Each row of the vocabulary is sorted by one thread block.
  Seconds sorting_time() const {
    const double waves =
        std::ceil(static_cast<double>(op_.dims.rows.value(v_)) / (kBlocksToFill * hardware_.multiprocessors));
    return kSortOfKey * (waves * static_cast<double>(op_.dims.vocab));
  }

  const Operation* attention_of_layer() const {
    const auto found =
        std::ranges::find_if(block_.operations, [](const Operation& op) { return is_attention(op.kind); });
    return found == block_.operations.end() ? nullptr : &*found;
  }
  double small_operations() const {
    return static_cast<double>(std::ranges::count_if(block_.operations, [](const Operation& op) {
      return cost_kind(op.kind) == CostKind::small_kernels;
    }));
  }
  bool has_experts() const {
    return std::ranges::any_of(block_.operations,
                               [](const Operation& op) { return op.kind == OpKind::route; });
  }

  static constexpr double kBytesOfLogit = 4;
  const Plan& plan_;
  const ServingImplementation& serving_;
  const Block& block_;
  Operation op_;
  Variables v_;
  const Work& work_;
  const Hardware& hardware_;
  const Calibration* calibration_;
  const Group* group_;
};

}  // namespace

bool is_served(const Scenario& scenario) {
  return scenario.workload.task == Task::generate && scenario.implementation.serving.has_value();
}

CostKind cost_kind(OpKind kind) {
  if (is_product(kind)) return CostKind::products;
  if (is_attention(kind)) return CostKind::attention;
  if (is_collective(kind)) return CostKind::collectives;
  return kind == OpKind::host_read ? CostKind::host : CostKind::small_kernels;
}

Price price_of_engine(const Plan& plan, const Block& block, const Operation& op, const Variables& v,
                      const Work& work, const Hardware& hardware, const Calibration* calibration,
                      const Group* group) {
  return EngineKernel(plan, block, op, v, work, hardware, calibration, group).price();
}

}  // namespace sim
