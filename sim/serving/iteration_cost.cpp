#include "sim/serving/iteration_cost.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sim/cost/efficiency.h"
#include "sim/cost/network.h"
#include "sim/cost/price.h"
#include "sim/plan/builder.h"

namespace sim {
namespace {

// Elementwise kernels reach 0.8 of the bandwidth (github.com/ai-dynamo/aiconfigurator, default).
constexpr double kElementwiseBandwidth = 0.8;
// Operands of up to half the last-level cache stay in it from one kernel to the next, and pass at twice the
// rate.
constexpr double kResidentShare = 0.5, kResidentRate = 2;
// Small kernels, launches and the host's work are estimates from sources about the engines, not measurements.
constexpr double kEstimateError = 0.5;
// Attention whose scores pass through memory (FasterTransformer without its fused kernel,
// BaseAttentionLayer.h): fp32 scores are written, masked and normalised, and read: 12 bytes a score in all;
// the batched products reach 0.3 of the peak.
constexpr double kBytesOfScore = 12, kStandardProducts = 0.3;
constexpr double kStandardAttentionError = 0.5;
// FlashAttention streams a long cache at 0.93 of an H100's bandwidth, 0.82 of an A100's (tables of
// aiconfigurator).
constexpr double kStreamedCache = 0.93;
// FlashMLA on H800 (github.com/deepseek-ai/FlashMLA): 3000 GB/s of 3350 where memory bounds it, 660 TFLOPS of
// 989 where arithmetic does.
constexpr double kLatentMemory = 0.9, kLatentCompute = 0.67, kLatentError = 0.3;
// One block a head and sequence fills the chip when there are two a multiprocessor.
constexpr double kBlocksToFill = 2;
// Rate of the last-level cache over that of memory: A100 5120 bytes a clock, of which kernels reach two
// thirds.
constexpr double kCacheOverMemory = 2.4;
constexpr double kBlockPerHeadError = 0.3;
// A segmented radix sort (cub) of a row by one block: six passes of some 2 ns a key. An estimate.
constexpr Seconds kSortOfKey = us(0.012);
// Products of narrow integers: how far the efficiencies of serving_implementation.h lie from single kernels.
constexpr double kNarrowError = 0.2;
// Share of the peak of a large product whose weights are expanded on the way.
constexpr double kExpandedCompute = 0.7;
// Products of experts in one kernel: at best 0.52 of the peak, rows of each expert that is hit padded to
// tiles of 16, and 0.83 of the bandwidth. The fused Triton kernel on H100 (tables of aiconfigurator) reaches
// 0.38 of the peak for 1024 tokens of 2 of 8 experts of Mixtral's shape, 0.15, 0.37, 0.43 for 1, 4, 16
// thousand tokens of 8 of 128 small ones; this gives 0.40; 0.17, 0.41, 0.50.
constexpr double kGroupedCompute = 0.52, kRowsOfTile = 16, kGroupedMemory = 0.83, kGroupedError = 0.3;
// Kernels of fp8 products, and of expanded ones, have the tiles of Hopper's warp-group products, 64 rows.
constexpr double kRowsOfGroupTile = 64;
// Where weights of 4 bits are expanded on the way, as in Triton's MXFP4 kernels on Hopper: an estimate.
constexpr double kGroupedExpanded = 0.5;
// Where the profile's share of the peak decides: clocks under load differ by machine and by what is
// multiplied.
constexpr double kPeakShareError = 0.15;
// Collectives between kernels of one step arrive late by what the ranks differ.
constexpr double kCollectiveError = 0.3;
// Lengths at which decode attention is priced; in between it is linear.
constexpr double kStepsPerDoubling = 4;
constexpr std::int64_t kMostContextSteps = 256;  // 64 doublings

// Sizes at which work is priced: 1, 2, 3, 4, 6, 8, 12, 16, ...
constexpr std::int64_t step_of_ladder(int step) {
  if (step == 0) return 1;
  const std::int64_t power = std::int64_t{1} << ((step + 1) / 2);
  return step % 2 == 1 ? power : power / 2 * 3;
}

struct LadderPosition {
  int step = 0;
  double share = 0;  // of the way to the next step
};

LadderPosition position_on_ladder(double size) {
  LadderPosition at;
  if (size <= 1) return at;
  at.step = std::max(0, 2 * static_cast<int>(std::log2(size)) - 1);
  while (static_cast<double>(step_of_ladder(at.step + 1)) <= size) ++at.step;
  const double below = static_cast<double>(step_of_ladder(at.step));
  at.share = (size - below) / (static_cast<double>(step_of_ladder(at.step + 1)) - below);
  return at;
}

template <class PriceOfSize>
CostBreakdown on_ladder(std::vector<CostBreakdown>& known, double size, PriceOfSize price_of) {
  const LadderPosition at = position_on_ladder(size);
  const auto above = static_cast<std::size_t>(at.step) + (at.share > 0 ? 1 : 0);
  while (known.size() <= above) {
    CostBreakdown next = price_of(step_of_ladder(static_cast<int>(known.size())));
    if (!known.empty() && known.back().total() > next.total()) next = known.back();
    known.push_back(next);
  }
  CostBreakdown cost = known[static_cast<std::size_t>(at.step)] * (1 - at.share);
  if (at.share > 0) cost += known[above] * at.share;
  return cost;
}

double relative(const MeasuredTime& t) {
  return t.high / t.seconds - 1;
}

// Attention of engines works in 16 bits also where products do not.
DType attention_dtype(const Operation& op) {
  return op.dtype == DType::fp8 ? DType::bf16 : op.dtype;
}

Variables tokens(std::int64_t n) {
  return {.batch = n, .query_length = 1, .kv_length = 1};
}

// The plan of one pipeline stage's ranks: what a layer and the head do does not depend on the lengths, but
// for windows, which are there where something may lie before them.
Plan plan_of(Scenario s) {
  if (!s.implementation.serving)
    throw std::invalid_argument("implementation \"" + s.implementation.name +
                                "\" has no serving profile: it says nothing of generation");
  s.strategy.pipeline_parallel = 1;
  if (s.strategy.expert_parallel == 1) s.strategy.data_parallel = 1;
  s.workload.prompt_length = std::max<std::int64_t>(1, s.model.reach_of_windows());
  s.workload.batch_size = 1;
  s.workload.max_new_tokens = 2;  // one by prefill, one by decoding
  return make_plan(s);
}

const Block* find_block(const Plan& plan, const std::string& name) {
  for (const Block& block : plan.blocks)
    if (block.name == name) return &block;
  return nullptr;
}

const Block* block_of(const Plan& plan, const std::string& name) {
  const Block* const block = find_block(plan, name);
  if (!block) throw std::logic_error("a generation's plan has no block " + name);
  return block;
}

const Operation* attention_of(const Block& block) {
  for (const Operation& op : block.operations)
    if (is_attention(op.kind)) return &op;
  throw std::logic_error("block " + block.name + " has no attention");
}

}  // namespace

IterationCost::IterationCost(const Scenario& scenario, const Calibration* calibration)
    : plan_(plan_of(scenario)),
      hardware_(scenario.hardware),
      serving_(*scenario.implementation.serving),
      layers_(static_cast<double>(scenario.model.num_hidden_layers)) {
  if (calibration) calibration_ = *calibration;
  if (calibration_ && calibration_->gpu) tables_ = *calibration_->gpu;
  if (tables_.launch.value <= 0) tables_.launch = hardware_.launch;
  head_block_ = block_of(plan_, "head.forward");
  for (const LayerKind kind : layer_kinds(plan_.scenario)) {
    LayerOfKind layer{.prompt = block_of(plan_, kind.prefix() + ".forward"), .experts = kind.experts};
    const Block* const decode = find_block(plan_, kind.prefix() + ".decode");
    layer.decode = decode ? decode : layer.prompt;
    layer.prompt_attention = attention_of(*layer.prompt);
    layer.decode_attention = attention_of(*layer.decode);
    double alike = 0;
    for (std::int64_t l = 0; l < scenario.model.num_hidden_layers; ++l)
      if (kind_of_layer(plan_.scenario, l) == kind) ++alike;
    layer.share = alike / layers_;
    for (const Operation& op : layer.decode->operations) {
      if (is_collective(op.kind)) collective_launches_ += layer.share;
      if (is_product(op.kind) || is_attention(op.kind)) other_launches_ += layer.share;
    }
    if (kind.experts) small_kernels_ += layer.share * serving_.expert_kernels;
    kinds_.push_back(layer);
  }
  for (const Buffer& buffer : plan_.buffers)
    if (buffer.buffer_class == BufferClass::kv_cache) cache_bits_ = static_cast<double>(bits(buffer.dtype));
}

void IterationCost::add_product(CostBreakdown& cost, const Operation& op, const Variables& v) const {
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  ProductShape shape{d(op.dims.rows.value(v)), d(op.dims.cols.value(v)), d(op.dims.inner.value(v)), op.dtype};
  const bool whole_head = serving_.whole_head_on_each_rank && op.id.starts_with("head.");
  if (whole_head) shape.n *= plan_.scenario.strategy.tensor_parallel;
  const auto timed = [&](const ProductShape& s) {
    if (auto t = product_time(tables_, hardware_, s, serving_.product_tables)) {
      const Seconds least =
          tables_.launch +
          Seconds{2 * s.m * s.n * s.k / (hardware_.peak_for(s.dtype).value * serving_.product_peak_share)};
      if (t->seconds < least) {
        t->seconds = least;
        t->high = least * (1 + kPeakShareError);
      }
      return *t;
    }
    KernelSample sample;
    sample.kind = OpKind::matmul;
    const Efficiency e = datasheet_efficiency(sample);
    const double bytes = d(bits(s.dtype)) / 8 * s.k * (s.m + s.n) + 2 * s.m * s.n;
    const double compute = 2 * s.m * s.n * s.k / (hardware_.peak_for(s.dtype).value * e.compute);
    const Seconds t =
        tables_.launch + Seconds{std::hypot(compute, bytes / (hardware_.memory_bandwidth.value * e.memory))};
    return MeasuredTime{t, t * (1 / (1 + e.error)), t * (1 + e.error), Fit::formula};
  };
  const double weight_bits = d(bits(plan_.buffer(operand(op, Role::weight))->dtype));
  const double arithmetic_bits = d(bits(op.dtype));
  if (weight_bits >= arithmetic_bits) {
    const MeasuredTime t = timed(shape);
    cost.add(CostKind::products, t.seconds, relative(t));
    return;
  }
  // Weights narrower than the arithmetic: streamed at a share of the 16-bit product's bandwidth, or bound by
  // the arithmetic all the same.
  const auto group = plan_.scenario.workload.weights_group;
  constexpr double kScaleAndZero = 32;  // bits
  const double stored = weight_bits + (group > 0 ? kScaleAndZero / d(group) : 0);
  const double efficiency = weight_bits > 4 ? serving_.int8_efficiency : serving_.int4_efficiency;
  const MeasuredTime one = timed({1, shape.n, shape.k, shape.dtype});
  const Seconds streamed =
      tables_.launch + (one.seconds - tables_.launch) * (stored / arithmetic_bits / efficiency);
  const Seconds computed = tables_.launch + Seconds{2 * shape.m * shape.n * shape.k /
                                                    (hardware_.peak_for(op.dtype).value * kExpandedCompute)};
  cost.add(CostKind::products, std::max(streamed, computed), std::hypot(relative(one), kNarrowError));
}

void IterationCost::add_grouped_product(CostBreakdown& cost, const Operation& op, const Variables& v,
                                        const Work& work) const {
  const double rows = work.flops.value / (2 * static_cast<double>(op.dims.cols.value(v)) *
                                          static_cast<double>(op.dims.inner.value(v)));
  const double of_expert = rows / std::max(1.0, experts_hit(op.dims, v));
  const Buffer& weights = *plan_.buffer(operand(op, Role::weight));
  const bool narrow = bits(weights.dtype) < bits(op.dtype);
  const bool warp_groups = hardware_.has_peak_for(DType::fp8) && (narrow || op.dtype == DType::fp8);
  const double tile = warp_groups ? kRowsOfGroupTile : kRowsOfTile;
  const double expanded = narrow ? kGroupedExpanded : 1;
  const double share = expanded * kGroupedCompute * of_expert / (of_expert + tile);
  const double compute = work.flops.value / (hardware_.peak_for(op.dtype).value * share);
  const double memory =
      static_cast<double>(work.memory().value) / (hardware_.memory_bandwidth.value * kGroupedMemory);
  cost.add(CostKind::products, tables_.launch + Seconds{std::hypot(compute, memory)}, kGroupedError);
}

void IterationCost::add_small_kernels(CostBreakdown& cost, double kernels, double bytes) const {
  const Seconds fixed = (serving_.kernel_time + serving_.gap) * kernels;
  const Seconds moved{bytes / (hardware_.memory_bandwidth.value * kElementwiseBandwidth)};
  cost.add(CostKind::small_kernels, fixed + moved, kEstimateError);
}

CostBreakdown IterationCost::all_reduce(double bytes) const {
  const int ranks = plan_.scenario.strategy.tensor_parallel;
  CostBreakdown cost;
  if (ranks == 1) return cost;
  // Between nodes by NCCL's formulas: the published series name no network.
  const bool one_node = ranks <= hardware_.devices_per_node;
  std::string_view software = one_node ? std::string_view(serving_.collective_tables) : std::string_view();
  for (const auto& rule : serving_.custom_all_reduce)
    if (rule.ranks == ranks && bytes <= static_cast<double>(rule.up_to.value))
      software = "TensorRT-LLM custom all-reduce";
  const CollectiveShape shape{CollectiveOperation::all_reduce, bytes, ranks,
                              std::min(ranks, hardware_.devices_per_node)};
  Seconds t;
  double error = kCollectiveError;
  if (const auto measured = collective_time(tables_, hardware_, shape, software)) {
    t = measured->seconds;
    error = std::max(error, relative(*measured));
  } else {
    t = multi_node_time(hardware_, hardware_.node_link, shape);
    error = 1;
  }
  cost.add(CostKind::collectives, t, error);
  return cost;
}

Group IterationCost::group_of(const Operation& op) const {
  return op.group < 0 ? Group{} : plan_.groups[static_cast<std::size_t>(op.group)];
}

CostBreakdown IterationCost::token_work_of(const LayerOfKind& kind, std::int64_t count, bool decode) const {
  CostBreakdown cost;
  double elementwise_bytes = 0;
  const Variables v = tokens(count);
  for (const Operation& op : (decode ? kind.decode : kind.prompt)->operations) {
    if (is_attention(op.kind)) continue;
    const Work work = work_of(plan_, op, v);
    if (op.kind == OpKind::matmul) {
      add_product(cost, op, v);
    } else if (op.kind == OpKind::grouped_matmul) {
      add_grouped_product(cost, op, v, work);
    } else if (op.kind == OpKind::all_reduce) {
      const Buffer& buffer = *plan_.buffer(operand(op, Role::buffer));
      cost += all_reduce(static_cast<double>(buffer.bytes(v).value));
    } else if (is_collective(op.kind)) {
      const Group group = group_of(op);
      const Price p = price(work, op, v, hardware_, calibration_ ? &*calibration_ : nullptr, &group);
      cost.add(CostKind::collectives, p.seconds, std::max(kCollectiveError, p.high / p.seconds - 1));
    } else {
      // What the kernel before left in the cache is read from there.
      const double bytes = static_cast<double>(work.memory().value);
      const double cache = static_cast<double>(hardware_.last_level_cache.value);
      elementwise_bytes += bytes < kResidentShare * cache ? bytes / kResidentRate : bytes;
    }
  }
  if (!decode)
    elementwise_bytes +=
        2 * serving_.prefill_copies *
        static_cast<double>(count * kind.prompt_attention->dims.heads * kind.prompt_attention->dims.head_dim);
  const double kernels = (decode ? serving_.decode_kernels : serving_.prefill_kernels) +
                         (kind.experts ? serving_.expert_kernels : 0);
  add_small_kernels(cost, kernels, elementwise_bytes);
  return cost;
}

CostBreakdown IterationCost::token_work_at(std::int64_t count, bool decode) const {
  CostBreakdown cost;
  for (const LayerOfKind& kind : kinds_) cost += token_work_of(kind, count, decode) * kind.share;
  cost.add(CostKind::small_kernels, serving_.gap * (other_launches_ + collective_launches_), kEstimateError);
  return cost;
}

CostBreakdown IterationCost::token_work(double count, bool decode) const {
  return on_ladder(token_work_[decode ? 1 : 0], count,
                   [&](std::int64_t tokens) { return token_work_at(tokens, decode); });
}

CostBreakdown IterationCost::decode_attention_at(std::int64_t sequences, double context) const {
  CostBreakdown cost;
  for (const LayerOfKind& kind : kinds_)
    cost += decode_attention_of(*kind.decode_attention, sequences, context) * kind.share;
  return cost;
}

CostBreakdown IterationCost::decode_attention_of(const Operation& attention, std::int64_t sequences,
                                                 double context) const {
  const Dims& n = attention.dims;
  if (n.window > 0) context = std::min(context, static_cast<double>(n.window));
  // At most a stretch; sequences that are at random places of theirs see half as much in the mean.
  if (n.chunk > 0) context = std::min(context, static_cast<double>(n.chunk));
  const AttentionShape shape{.batch = static_cast<double>(sequences),
                             .heads = static_cast<double>(n.heads),
                             .kv_heads = static_cast<double>(std::max<std::int64_t>(1, n.kv_heads)),
                             .head_dim = static_cast<double>(n.head_dim),
                             .query_length = 1,
                             .kv_length = std::max(1.0, context),
                             .causal = false,
                             .dtype = attention_dtype(attention)};
  CostBreakdown cost;
  if (attention.kind == OpKind::attention_latent_cached) {
    // One latent a token is key and value of all heads, which share it.
    const double elements = shape.batch * shape.kv_length;
    const double bytes = cache_bits_ / 8 * elements * shape.head_dim;
    const double flops = 2 * elements * shape.heads * (shape.head_dim + static_cast<double>(n.value_dim));
    const Seconds streamed{bytes / (hardware_.memory_bandwidth.value * kLatentMemory)};
    const Seconds computed{flops / (hardware_.peak_for(shape.dtype).value * kLatentCompute)};
    cost.add(CostKind::attention, serving_.decode_attention_latency + std::max(streamed, computed),
             kLatentError);
    return cost;
  }
  if (serving_.decode_attention == DecodeAttention::tabulated)
    if (const auto t = attention_time(tables_, hardware_, MeasuredKernel::attention_decode, shape,
                                      serving_.attention_tables)) {
      // A narrower cache saves its bytes' time, not the kernel's fixed one.
      const double wide = 2 * 2 * shape.batch * shape.kv_heads * shape.kv_length * shape.head_dim;
      const Seconds streamed{std::min(wide / (hardware_.memory_bandwidth.value * kStreamedCache),
                                      (t->seconds - tables_.launch).value)};
      cost.add(CostKind::attention, t->seconds - streamed * (1 - cache_bits_ / 16), relative(*t));
      return cost;
    }
  // Heads of a group each read their keys and values: the first from memory, the others from the cache.
  const bool block_per_head = serving_.decode_attention == DecodeAttention::block_per_head;
  const double of_head = 2 * cache_bits_ / 8 * shape.batch * shape.kv_length * shape.head_dim;
  const double bytes = block_per_head ? of_head * std::max(shape.kv_heads, shape.heads / kCacheOverMemory)
                                      : of_head * shape.kv_heads;
  const double blocks = shape.batch * shape.heads;
  const double filled =
      block_per_head ? std::min(1.0, blocks / (kBlocksToFill * hardware_.multiprocessors)) : 1;
  const double rate = hardware_.memory_bandwidth.value * serving_.decode_attention_efficiency * filled;
  cost.add(CostKind::attention, serving_.decode_attention_latency + Seconds{bytes / rate},
           kBlockPerHeadError);
  return cost;
}

const CostBreakdown& IterationCost::decode_attention_node(int sequences, int context) const {
  const std::int64_t key = std::int64_t{sequences} * kMostContextSteps + context;
  if (const auto found = decode_attention_.find(key); found != decode_attention_.end()) return found->second;
  CostBreakdown cost = decode_attention_at(step_of_ladder(sequences), std::exp2(context / kStepsPerDoubling));
  for (const bool fewer : {true, false}) {
    if ((fewer ? sequences : context) == 0) continue;
    const CostBreakdown& below =
        fewer ? decode_attention_node(sequences - 1, context) : decode_attention_node(sequences, context - 1);
    if (below.total() > cost.total()) cost = below;
  }
  return decode_attention_.emplace(key, cost).first->second;
}

CostBreakdown IterationCost::decode_attention(double sequences, double context) const {
  const LadderPosition at = position_on_ladder(sequences);
  const double doublings = kStepsPerDoubling * std::log2(std::max(1.0, context));
  const int step = static_cast<int>(doublings);
  const double below = std::exp2(step / kStepsPerDoubling), above = std::exp2((step + 1) / kStepsPerDoubling);
  const double share = std::clamp((context - below) / (above - below), 0.0, 1.0);
  const auto along_context = [&](int s) {
    CostBreakdown cost = decode_attention_node(s, step) * (1 - share);
    cost += decode_attention_node(s, step + 1) * share;
    return cost;
  };
  CostBreakdown cost = along_context(at.step);
  if (at.share > 0) {
    cost = cost * (1 - at.share);
    cost += along_context(at.step + 1) * at.share;
  }
  return cost;
}

CostBreakdown IterationCost::prompt_attention(const Iteration::Prompt& prompt) const {
  CostBreakdown cost;
  for (const LayerOfKind& kind : kinds_)
    cost += prompt_attention_of(*kind.prompt_attention, prompt) * kind.share;
  return cost;
}

// TensorRT-LLM's fused attention of prompts works in fp8 where the cache is fp8 (docs, use_fp8_context_fmha):
// as much faster as FlashAttention 3 is.
double IterationCost::fp8_prompt_ratio(AttentionShape shape) const {
  constexpr double kFp8Bits = 8;
  if (!serving_.fp8_cache_with_fp8_weights || cache_bits_ > kFp8Bits || !hardware_.has_peak_for(DType::fp8))
    return 1;
  constexpr std::string_view kMeasured = "FlashAttention3";
  shape.dtype = DType::bf16;
  const auto wide = attention_time(tables_, hardware_, MeasuredKernel::attention_forward, shape, kMeasured);
  shape.dtype = DType::fp8;
  const auto narrow = attention_time(tables_, hardware_, MeasuredKernel::attention_forward, shape, kMeasured);
  return wide && narrow ? std::min(1.0, narrow->seconds / wide->seconds) : 1;
}

CostBreakdown IterationCost::prompt_attention_of(const Operation& attention,
                                                 const Iteration::Prompt& prompt) const {
  const Dims& n = attention.dims;
  const AttentionShape shape{.batch = prompt.sequences,
                             .heads = static_cast<double>(n.heads),
                             .kv_heads = static_cast<double>(std::max<std::int64_t>(1, n.kv_heads)),
                             .head_dim = static_cast<double>(n.head_dim),
                             .query_length = prompt.tokens,
                             .kv_length = std::max(prompt.context, prompt.tokens),
                             .causal = true,
                             .dtype = attention_dtype(attention)};
  CostBreakdown cost;
  // With a window or stretches queries see fewer keys: the kernel's time shrinks with the pairs.
  double seen = 1;
  if (const std::int64_t reach = std::max(n.window, n.chunk);
      reach > 0 && shape.kv_length > static_cast<double>(reach)) {
    const Variables v{.batch = 1,
                      .query_length = static_cast<std::int64_t>(shape.query_length),
                      .kv_length = static_cast<std::int64_t>(shape.kv_length)};
    seen = visible_pairs(v, n.window, n.chunk) / visible_pairs(v);
  }
  const double square = shape.batch * shape.heads * shape.query_length * shape.kv_length;
  if (serving_.standard_prefill_attention) {
    const Seconds moved{kBytesOfScore * square / (hardware_.memory_bandwidth.value * kElementwiseBandwidth)};
    const Seconds computed{4 * square * shape.head_dim /
                           (hardware_.peak_for(shape.dtype).value * kStandardProducts)};
    cost.add(CostKind::attention, moved + computed, kStandardAttentionError);
    return cost;
  }
  if (const auto t = attention_time(tables_, hardware_, MeasuredKernel::attention_prefill, shape,
                                    serving_.attention_tables)) {
    const Seconds core = (t->seconds - tables_.launch) * (seen * fp8_prompt_ratio(shape));
    cost.add(CostKind::attention, tables_.launch + core, relative(*t));
    return cost;
  }
  KernelSample sample;
  sample.kind = OpKind::attention_flash;
  sample.query_length = static_cast<std::int64_t>(shape.query_length);
  const Efficiency e = datasheet_efficiency(sample);
  const Seconds computed{attention_flops(MeasuredKernel::attention_prefill, shape).value /
                         (hardware_.peak_for(shape.dtype).value * e.compute)};
  cost.add(CostKind::attention, tables_.launch + computed * seen, e.error);
  return cost;
}

bool IterationCost::in_graph(const Iteration& iteration) const {
  if (!serving_.graph_decode || !iteration.prompts.empty()) return false;
  return serving_.graph_batches.empty() ||
         iteration.decode_sequences <= static_cast<double>(serving_.graph_batches.back());
}

double IterationCost::computed_sequences(const Iteration& iteration) const {
  const double n = iteration.decode_sequences;
  if (serving_.graph_batches.empty() || !in_graph(iteration)) return n;
  const auto size = std::lower_bound(serving_.graph_batches.begin(), serving_.graph_batches.end(),
                                     std::llround(std::ceil(n)));
  return static_cast<double>(*size);
}

CostBreakdown IterationCost::layers(const Iteration& iteration, double count) const {
  double tokens = computed_sequences(iteration) * iteration.decode_tokens;
  CostBreakdown cost;
  if (iteration.decode_sequences > 0)
    cost += decode_attention(iteration.decode_sequences, iteration.decode_context);
  for (const Iteration::Prompt& prompt : iteration.prompts) {
    tokens += prompt.sequences * prompt.tokens;
    cost += prompt_attention(prompt);
  }
  cost += token_work(tokens, iteration.prompts.empty());
  return cost * count;
}

CostBreakdown IterationCost::head(double sequences) const {
  return on_ladder(head_, sequences, [&](std::int64_t n) { return head_at(n); });
}

CostBreakdown IterationCost::head_at(std::int64_t n) const {
  CostBreakdown cost;
  const Variables v = tokens(n);
  const int ranks = plan_.scenario.strategy.tensor_parallel;
  for (const Operation& op : head_block_->operations)
    if (op.kind == OpKind::matmul) add_product(cost, op, v);
  const double logits = 4 * static_cast<double>(n * plan_.scenario.model.vocab_size);
  add_small_kernels(cost, 2 + serving_.sampling_kernels, serving_.sampling_passes * logits);
  if (serving_.sorts_vocabulary) {
    const double waves = std::ceil(static_cast<double>(n) / (kBlocksToFill * hardware_.multiprocessors));
    cost.add(CostKind::small_kernels,
             kSortOfKey * (waves * static_cast<double>(plan_.scenario.model.vocab_size)), kEstimateError);
  }
  if (ranks > 1 && !serving_.whole_head_on_each_rank) {
    const CollectiveShape gather{CollectiveOperation::all_gather, logits, ranks,
                                 std::min(ranks, hardware_.devices_per_node)};
    const auto t = collective_time(tables_, hardware_, gather, serving_.collective_tables);
    cost.add(CostKind::collectives, t ? t->seconds : multi_node_time(hardware_, hardware_.node_link, gather),
             kCollectiveError);
  }
  return cost;
}

CostBreakdown IterationCost::with_host(CostBreakdown cost, const Iteration& iteration,
                                       double layer_count) const {
  double sequences = iteration.decode_sequences;
  for (const Iteration::Prompt& prompt : iteration.prompts) sequences += prompt.sequences;
  if (!in_graph(iteration)) {
    const double small = iteration.prompts.empty() ? serving_.decode_kernels : serving_.prefill_kernels;
    const Seconds launched = serving_.launch * (layer_count * (small + small_kernels_ + other_launches_)) +
                             serving_.collective_launch * (layer_count * collective_launches_) +
                             serving_.launch * static_cast<double>(serving_.sampling_kernels + 4);
    if (launched > cost.total()) cost.add(CostKind::host, launched - cost.total(), kEstimateError);
  }
  const Seconds host = serving_.host_step + serving_.host_sequence * sequences;
  if (serving_.host_overlapped) {
    if (host > cost.total()) cost.add(CostKind::host, host - cost.total(), kEstimateError);
    cost.add(CostKind::host, serving_.host_exposed, kEstimateError);
  } else {
    cost.add(CostKind::host, host, kEstimateError);
  }
  return cost;
}

CostBreakdown IterationCost::iteration(const Iteration& iteration) const {
  CostBreakdown cost = layers(iteration, layers_);
  double sampled = iteration.decode_sequences * iteration.decode_tokens;
  for (const Iteration::Prompt& prompt : iteration.prompts)
    if (prompt.last) sampled += prompt.sequences;
  if (sampled > 0) cost += head(sampled);
  return with_host(std::move(cost), iteration, layers_);
}

}  // namespace sim
