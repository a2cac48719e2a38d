#include "sim/cost/software.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "sim/cost/engine_price.h"
#include "sim/cost/fused_operations.h"
#include "sim/cost/network.h"
#include "sim/cost/side_passes.h"
#include "sim/plan/ranks.h"
#include "sim/plan/schedule.h"

namespace sim {
namespace {

// Compute beside collectives takes this many times as long, and so do collectives beside compute: 18.9 % more
// on average over A100, H100 and MI200, eight and four of them in a node (Lee et al. 2024, "Characterizing
// compute-communication overlap"). A channel of a collective holds a multiprocessor: 24 of them inside these
// nodes, 16 with eight adapters a node, two for each ("execution channels are typically 2x the search
// channels", NVIDIA/nccl issue 1041).
constexpr double kComputeBesideNodeLinks = 1.19, kComputeBesideNetwork = 1 + 0.19 * 16 / 24;
constexpr double kExchangeBesideCompute = 1.10;
// Elementwise kernels reach this share of the bandwidth (cost/efficiency.cpp).
constexpr double kMemoryEfficiency = 0.75;

// Raises a price to the time of the memory traffic beside the arithmetic; tables know only their own results.
Price at_least(Price a, Seconds streamed) {
  if (streamed <= a.seconds) return a;
  a = a * (streamed / a.seconds);
  a.bound = Bound::memory;
  return a;
}

const Implementation& software(const Plan& plan) {
  return plan.scenario.implementation;
}

bool in_group(const Plan& plan, const Operation& op, Axis axis) {
  return op.group >= 0 && plan.group(op.group).axis == axis;
}

bool has_ideal_kernels(const Scenario& scenario) {
  return scenario.implementation.kernels.slower == 0;
}

Bytes scaled(Bytes bytes, double factor) {
  return {std::llround(static_cast<double>(bytes.value) * factor)};
}

// ---- Memory traffic

// The profile's factor for a kind of operation; 1 where the profile has none.
double factor_of(const std::map<std::string, double>& by_kind, OpKind kind) {
  if (by_kind.empty()) return 1;
  const auto found = by_kind.find(std::string(name(kind)));
  return found == by_kind.end() ? 1 : found->second;
}

Work with_traffic(const Plan& plan, const Operation& op, const Variables& v, Work work) {
  const KernelProfile& kernels = software(plan).kernels;
  double factor = factor_of(kernels.traffic, op.kind);
  // The profile's figure includes everything that happens to a logit between two products.
  if (kernels.loss_bytes_per_logit > 0 && info(op.kind).family == Family::loss) {
    const bool divided = plan.scenario.strategy.tensor_parallel > 1;
    const double logits = static_cast<double>(op.dims.rows.value(v)) * static_cast<double>(op.dims.vocab);
    const double own = logits * kernels.loss_bytes_per_logit / (divided ? 2 : 1);
    factor = own / static_cast<double>(std::max<std::int64_t>(1, work.memory().value));
  }
  work.read = scaled(work.read, factor);
  work.written = scaled(work.written, factor);
  return work;
}

// Bytes that move when a micro-batch's gradients are added to their accumulators by passes of their own.
double accumulation_bytes(const Plan& plan, const Operation& op, const Variables& v) {
  const double each = software(plan).kernels.accumulation_bytes_per_parameter;
  if (each <= 0) return 0;
  const bool of_weight = info(op.kind).direction == Direction::weight_gradient;
  if (!of_weight && op.kind != OpKind::embedding_backward) return 0;
  return each * plan.elements_of(op, Role::dweight, v);
}

// ---- Kernels and their launches

bool is_layer_block(const Block& block, BlockPass pass) {
  return block.role == BlockRole::layer && block.pass == pass;
}

double own_operations(const Block& block) {
  return static_cast<double>(
      std::ranges::count_if(block.operations, [](const Operation& op) { return !is_collective(op.kind); }));
}

// Kernels that one operation of a pass stands for: the layer's launches by the profile over its operations.
double launches_an_operation(const Plan& plan, const Block& block) {
  const KernelProfile& kernels = software(plan).kernels;
  const bool backward = is_backward(block.pass);
  const int launched = backward ? kernels.launches_backward : kernels.launches_forward;
  if (launched == 0 || block.pass == BlockPass::none) return 1;
  const BlockPass like = backward ? BlockPass::backward : BlockPass::forward;
  const auto layer =
      std::ranges::find_if(plan.blocks, [&](const Block& b) { return is_layer_block(b, like); });
  return layer == plan.blocks.end() ? 1 : std::max(1.0, launched / own_operations(*layer));
}

// ---- Tensor parallelism

BufferId written_by(const Operation& op) {
  return op.operands.front().buffer;
}

bool reads_buffer(const Operation& op, BufferId buffer) {
  return std::any_of(op.operands.begin() + 1, op.operands.end(),
                     [&](const Operand& o) { return o.buffer == buffer; });
}

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// product_after: the product of a kind that reads what a gather brings. Only products may read it before that
// one. product_before: the product of a kind that writes what a reduction sums, before it.
std::size_t product_after(const Block& block, std::size_t gather, OpKind kind) {
  const BufferId brought = written_by(block.operations[gather]);
  for (std::size_t i = gather + 1; i < block.operations.size(); ++i) {
    const Operation& op = block.operations[i];
    if (!reads_buffer(op, brought)) continue;
    if (op.kind == kind) return i;
    if (!is_product(op.kind)) return kNone;
  }
  return kNone;
}

std::size_t product_before(const Block& block, std::size_t reduction, OpKind kind) {
  for (std::size_t i = reduction; i-- > 0;)
    if (block.operations[i].kind == kind) return i;
  return kNone;
}

struct Beside {
  TensorOverlap overlap;
  std::size_t product = kNone;
  bool own_rows = false;  // a product may begin with the rank's own rows
};

Beside beside(const Plan& plan, const Block& block, Phase phase, std::size_t i) {
  const TensorParallelProfile& profile = software(plan).tensor_parallel;
  const Operation& op = block.operations[i];
  const bool backward = phase == Phase::backward;
  if (op.kind == OpKind::all_gather) {
    if (!backward) return {profile.forward_gather, product_after(block, i, OpKind::matmul), true};
    // Backward gathers either a gradient, which both products read, or forward's input, for the weights only.
    const std::size_t input = product_after(block, i, OpKind::matmul_backward_input);
    if (input != kNone) return {profile.backward_gather, input, true};
    const std::size_t weight = product_after(block, i, OpKind::matmul_backward_weight);
    if (weight == kNone || weight + 1 >= block.operations.size()) return {};
    return {profile.input_gather, weight + 1, false};
  }
  if (op.kind == OpKind::reduce_scatter)
    return backward
               ? Beside{profile.backward_scatter, product_before(block, i, OpKind::matmul_backward_weight)}
               : Beside{profile.forward_scatter, product_before(block, i, OpKind::matmul)};
  if (op.kind == OpKind::all_reduce && backward)
    return {profile.backward_all_reduce, product_before(block, i, OpKind::matmul_backward_weight)};
  return {};
}

// Whether a gather is left out, because the software keeps the product's input that forward gathered.
bool is_left_out(const Plan& plan, const Block& block, std::size_t i) {
  const Operation& op = block.operations[i];
  return !software(plan).tensor_parallel.gathers_again && op.kind == OpKind::all_gather &&
         in_group(plan, op, Axis::tensor) &&
         product_after(block, i, OpKind::matmul_backward_weight) != kNone &&
         product_after(block, i, OpKind::matmul_backward_input) == kNone;
}

// Whether a product is worked on in pieces because its rows arrive from other ranks: first a rank's own rows,
// then the rows before and after them (nanotron, tensor_parallel/functional.py).
bool in_pieces(const Plan& plan, const Block& block, std::size_t index) {
  if (software(plan).tensor_parallel.product_pieces != 0) return false;
  const Operation& op = block.operations[index];
  if (op.kind != OpKind::matmul && op.kind != OpKind::matmul_backward_input) return false;
  return std::any_of(block.operations.begin(), block.operations.begin() + static_cast<std::ptrdiff_t>(index),
                     [&](const Operation& before) {
                       return before.kind == OpKind::all_gather && in_group(plan, before, Axis::tensor) &&
                              reads_buffer(op, written_by(before));
                     });
}

// Whether this program's own GPU kernels run.
bool on_own_gpu(const Plan& plan, const Hardware& hardware) {
  return software(plan).runs_here && !hardware.is_cpu;
}

// The extra traffic of this program's own GPU kernels beside a product's factors and result: a residual that
// is added to the result, rows that are summed to a bias's gradient. The product's arithmetic does not hide
// it (runtime/cuda/matmul.cu).
Bytes beside_product(const Plan& plan, const Operation& op, const Variables& v) {
  Bytes sum;
  const auto add = [&](Role role) { sum += plan.buffer(operand(op, role))->bytes(bound_to(op, v)); };
  if (has(op, Role::residual)) add(Role::residual);
  if (has(op, Role::dbias) && has(op, Role::dout)) add(Role::dout);
  return sum;
}

// The bytes written by the pass of own kernels that expands a stored weight for a product of many rows. Other
// software has no such pass.
Bytes dequantised(const Plan& plan, const Operation& op, const Variables& v, const Hardware& hardware) {
  if (!on_own_gpu(plan, hardware) || op.kind != OpKind::matmul || !has(op, Role::weight_scales)) return {};
  const std::int64_t stored_bits = bits(plan.buffer(operand(op, Role::weight))->dtype);
  if (op.dims.rows.value(v) <= rows_that_read_stored(stored_bits, op.dims.inner.value(v))) return {};
  return {op.dims.cols.value(v) * op.dims.inner.value(v) * bits(op.dtype) / 8};
}

std::span<const CollectiveCurve> curves_of(const Calibration* calibration) {
  if (!calibration || !calibration->gpu) return {};
  return calibration->gpu->collectives;
}

// ---- Clocks

// The best products reach this share of the peak (cost/efficiency.cpp). Their power is what makes clocks
// drop.
constexpr double kFullLoad = 0.80;

// Whether prices come from samples that were timed one by one, each on a GPU that had rested.
bool timed_here(const Calibration* calibration) {
  return calibration && !calibration->hardware.is_cpu && !calibration->samples.empty();
}

// How many times as long a kernel takes at the clock that the power limit
// allows: the full drop where tensor cores are fully busy, none where they
// idle. It applies to tables, whose kernels were timed without pauses.
double slower_under_load(const PricedOperation& alone, DType dtype, const Hardware& hardware) {
  const double busy = alone.work.flops.value / (hardware.peak_for(dtype).value * alone.price.seconds.value);
  return 1 + (1 / hardware.sustained_clock - 1) * std::min(1.0, busy / kFullLoad);
}

// ---- Expert parallelism

bool is_expert_exchange(const Plan& plan, const Operation& op) {
  return op.kind == OpKind::all_to_all && in_group(plan, op, Axis::expert);
}

// Tokens go to experts in e4m3 with a 32-bit scale for each 128 elements. The gradients of the experts'
// results go back to the experts in the same way (DeepSeek-V3, arXiv 2412.19437, section 3.3.3).
Work with_expert_dtype(const Plan& plan, const Operation& op, Work work) {
  constexpr double kBitsOfElement = 8 + 32.0 / 128;
  const bool in_fp8 = software(plan).expert_parallel.dispatches_fp8 &&
                      plan.scenario.workload.dtype == DType::fp8 && op.place == Place::to_experts;
  if (in_fp8) work.network = scaled(work.network, kBitsOfElement / static_cast<double>(bits(op.dtype)));
  return work;
}

// ---- Limits of the hardware

// Operands of up to half the last-level cache stay in it from one operation to the next (engine_price.cpp).
constexpr double kResidentShare = 0.5;
// Switches that sum the data halve what an all-reduce sends (NVLink SHARP; nccl-tests, PERFORMANCE.md).
constexpr double kReducedInSwitches = 2;

Seconds shortest_exchange(const Operation& op, const Work& work, const Hardware& hardware,
                          const Group& group) {
  const int in_node = ranks_in_node(group, hardware.devices_per_node);
  const bool reduces = op.kind == OpKind::all_reduce;
  if (in_node == group.size) return work.network / (hardware.node_link * (reduces ? kReducedInSwitches : 1));
  const bool through_own_adapter = op.kind == OpKind::all_to_all || op.kind == OpKind::send;
  const double adapters = through_own_adapter ? 1 : in_node * (reduces ? kReducedInSwitches : 1);
  const double leaves = op.kind == OpKind::all_to_all
                            ? static_cast<double>(group.size - in_node) / std::max(1, group.size - 1)
                            : 1;
  return work.network / (hardware.network_link * adapters) *
         (leaves * crossing_share(op.dims, group, hardware));
}

// The least time that the hardware allows an operation; zero where its operands never leave the cache.
Seconds shortest_time(const Operation& op, const Work& work, const Hardware& hardware, const Group* group) {
  if (is_collective(op.kind)) return group ? shortest_exchange(op, work, hardware, *group) : Seconds{};
  if (work.copied.value > 0) return work.copied / hardware.host_link;
  if (work.host.value > 0) return work.host / hardware.host_memory_bandwidth;
  const double resident = kResidentShare * static_cast<double>(hardware.last_level_cache.value);
  if (!info(op.kind).arithmetic.tensor_cores && static_cast<double>(work.memory().value) <= resident)
    return {};
  const Seconds compute = work.flops.value > 0 ? work.flops / hardware.peak_for(op.dtype) : Seconds{};
  return std::max(compute, work.memory() / hardware.memory_bandwidth);
}

Price at_most(Price a, Seconds limit) {
  if (limit >= a.seconds) return a;
  return a * (limit / a.seconds);
}

// ---- Data parallelism

bool is_data_exchange(const Plan& plan, const Block& block, const Operation& op) {
  if (block.role != BlockRole::gather && block.role != BlockRole::reduce) return false;
  return in_group(plan, op, Axis::data) || in_group(plan, op, Axis::shard) ||
         in_group(plan, op, Axis::replica) || in_group(plan, op, Axis::expert_data);
}

double bucket_bytes(const DataParallelProfile& profile) {
  return profile.bucket_mib * 1024 * 1024;
}

double bytes_a_stage(const Plan& plan, DType dtype) {
  const Strategy& s = plan.scenario.strategy;
  return static_cast<double>(count_parameters(plan.scenario.model).total) / s.tensor_parallel /
         s.pipeline_parallel * static_cast<double>(bits(dtype)) / 8;
}

// Prices the group's exchange of a unit, in messages of the implementation's size and type.
PricedOperation price_exchange(const Plan& plan, const Operation& op, const Variables& v,
                               const Hardware& hardware, const Calibration* calibration, const Group& group) {
  const DataParallelProfile& profile = software(plan).data_parallel;
  PricedOperation priced{work_of(plan, op, v), {}};
  DType dtype = op.dtype;
  if (profile.gathers_fp8 && op.kind == OpKind::all_gather && plan.scenario.workload.dtype == DType::fp8) {
    priced.work.network = scaled(priced.work.network, 0.5);
    dtype = DType::fp8;
  }
  if (profile.reduction_dtype && op.kind != OpKind::all_gather) {
    priced.work.network = scaled(priced.work.network, static_cast<double>(bits(*profile.reduction_dtype)) /
                                                          static_cast<double>(bits(dtype)));
    dtype = *profile.reduction_dtype;
  }
  double units = 1;  // in one message
  const double ring = op.kind == OpKind::all_reduce ? 2 : 1;
  const double whole =
      static_cast<double>(priced.work.network.value) / ring * group.size / std::max(1, group.size - 1);
  // An exchange that nothing hides goes in one flat message: parameters, or gradients that are reduced whole
  // before each rank takes its shard (nanotron, src/nanotron/optim/gradient_accumulator.py: all-reduce of the
  // contiguous fp32 buffer). For other gradients a message holds at least one unit.
  const int zero_stage = plan.scenario.strategy.zero_stage;
  const bool gathers = op.kind == OpKind::all_gather;
  const bool beside = zero_stage == 3   ? true
                      : gathers         ? profile.overlaps_gather
                      : zero_stage == 1 ? profile.overlaps_sharded_reduction
                                        : profile.overlaps_reduction;
  const double stage_bytes = bytes_a_stage(plan, dtype);
  double bucket = bucket_bytes(profile);
  const bool flat = gathers || (zero_stage == 1 && profile.reduces_whole);
  if (!beside) bucket = flat ? stage_bytes : std::max(bucket, whole);
  if (bucket > 0 && whole > 0) units = std::min(bucket, std::max(whole, stage_bytes)) / whole;
  Work message = priced.work;
  message.network = scaled(message.network, units);
  priced.price = price(message, op, v, hardware, calibration, &group) * (1 / units);
  const double passes =
      op.kind == OpKind::all_gather ? profile.gather_copy_passes : profile.reduction_copy_passes;
  if (passes > 0)
    priced.price =
        priced.price + Seconds{passes * whole / (hardware.memory_bandwidth.value * kMemoryEfficiency)};
  // Operands come in pairs: a tensor and its shard.
  if (gathers && !beside)
    priced.price =
        priced.price + profile.gather_part * (static_cast<double>(op.operands.size()) / 2 * group.size);
  return priced;
}

}  // namespace

PricedOperation price_with_software(const Plan& plan, const Block& block, std::size_t index,
                                    const Variables& v, const Hardware& hardware,
                                    const Calibration* calibration, const Group* group, Bytes working_set,
                                    Bytes for_neighbours) {
  const Operation& op = block.operations[index];
  if (is_served(plan.scenario)) {
    const Work work = work_of(plan, op, v);
    return {work, price_of_engine(plan, block, op, v, work, hardware, calibration, group)};
  }
  if (is_left_out(plan, block, index)) return {};
  const bool at_limits = has_ideal_kernels(plan.scenario);
  if (group && is_data_exchange(plan, block, op)) {
    PricedOperation exchange = price_exchange(plan, op, v, hardware, calibration, *group);
    if (at_limits)
      exchange.price = at_most(exchange.price, shortest_time(op, exchange.work, hardware, group));
    return exchange;
  }
  PricedOperation priced{with_expert_dtype(plan, op, with_traffic(plan, op, v, work_of(plan, op, v))), {}};
  const KernelSoftware kernels{.attention = software(plan).kernels.attention,
                               .stored = narrow_storage(plan, op)};
  const auto price_of = [&](const Operation& operation, const Work& work) {
    return price(work, operation, v, hardware, calibration, group, working_set, kernels);
  };
  if (in_pieces(plan, block, index)) {
    const std::int32_t ranks = plan.scenario.strategy.tensor_parallel;
    // With two ranks the other's rows are one piece; otherwise a rank in the middle has two equal pieces.
    const int pieces = ranks == 2 ? 1 : 2;
    Operation own = op, others = op;
    own.dims.rows = op.dims.rows / ranks;
    others.dims.rows = op.dims.rows * Extent{ranks - 1} / (ranks * pieces);
    const auto part = [&](double share) {
      Work work = priced.work;
      work.flops = work.flops * share;
      return work;
    };
    priced.price =
        price_of(own, part(1.0 / ranks)) + price_of(others, part((ranks - 1.0) / ranks / pieces)) * pieces;
  } else {
    const bool own_product = on_own_gpu(plan, hardware) && is_product(op.kind);
    Work moved = priced.work;
    if (!own_product) moved.written += for_neighbours;
    priced.price = price_of(op, moved);
    if (own_product)
      priced.price = priced.price + (for_neighbours + beside_product(plan, op, v)) /
                                        (hardware.memory_bandwidth * kMemoryEfficiency);
    else if (for_neighbours.value > 0)
      priced.price = at_least(priced.price, moved.memory() / (hardware.memory_bandwidth * kMemoryEfficiency));
  }
  if (at_limits) {
    const Seconds shortest = shortest_time(op, priced.work, hardware, group);
    if (!group && priced.price.seconds.value > 0) {
      priced.price = priced.price * (shortest / priced.price.seconds);
      if (shortest.value <= 0) priced.work.read = priced.work.written = {};
      return priced;
    }
    priced.price = at_most(priced.price, shortest);
    for (const CollectiveCurve& curve : curves_of(calibration))
      if (group && curve.operation == info(op.kind).collective)
        priced.price = at_most(priced.price, price(priced.work, op, v, hardware, calibration, group, {},
                                                   {.collectives = curve.fit.software})
                                                 .seconds);
    return priced;
  }
  if (group) return priced;
  if (const Bytes wide = dequantised(plan, op, v, hardware); wide.value > 0) {
    Work product = priced.work;  // reads all that the pass before it wrote
    product.read += wide;
    const Bytes stored = plan.buffer(operand(op, Role::weight))->bytes(v);
    const Seconds pass = (stored + wide) / (hardware.memory_bandwidth * kMemoryEfficiency);
    priced.price = price_of(op, product) + pass;
    priced.work.read += wide;
    priced.work.written += wide;
  }
  const double times = factor_of(software(plan).kernels.times, op.kind);
  if (!info(op.kind).arithmetic.tensor_cores) {
    priced.price = priced.price * times;
  } else {
    priced.price = priced.price * (software(plan).kernels.slower * times);
    if (plan.scenario.workload.task == Task::train && !timed_here(calibration))
      priced.price = priced.price * slower_under_load(priced, op.dtype, hardware);
  }
  const Seconds launch = calibration ? calibration->launch : hardware.launch;
  priced.price = priced.price + launch * (launches_an_operation(plan, block) - 1);
  if (calibration) priced.price = priced.price + calibration->change;
  if (const double bytes = accumulation_bytes(plan, op, v) + side_bytes(plan, op, v); bytes > 0) {
    priced.price = priced.price + Seconds{bytes / (hardware.memory_bandwidth.value * kMemoryEfficiency)};
    priced.work.read += scaled({1}, bytes);
  }
  return priced;
}

void hold_clocks_back(const Plan& plan, const Block& block, std::vector<PricedOperation>& operations,
                      const Hardware& hardware, const Calibration* calibration) {
  if (plan.scenario.workload.task != Task::train || !timed_here(calibration) ||
      has_ideal_kernels(plan.scenario))
    return;
  double busy = 0, all = 0;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Operation& op = block.operations[i];
    if (is_collective(op.kind)) continue;
    all += operations[i].price.seconds.value;
    if (info(op.kind).arithmetic.tensor_cores)
      busy += operations[i].work.flops.value / hardware.peak_for(op.dtype).value;
  }
  if (!(all > 0)) return;
  const double slower = 1 + (1 / hardware.sustained_clock - 1) * std::min(1.0, busy / all / kFullLoad);
  for (std::size_t i = 0; i < operations.size(); ++i)
    if (!is_collective(block.operations[i].kind) && operations[i].price.bound == Bound::compute)
      operations[i].price = operations[i].price * slower;
}

void hide_behind_products(const Plan& plan, const Block& block, Phase phase,
                          std::vector<PricedOperation>& operations, const Hardware& hardware) {
  const int ranks = plan.scenario.strategy.tensor_parallel;
  const bool at_limits = has_ideal_kernels(plan.scenario);
  const double slower = at_limits                            ? 1
                        : ranks <= hardware.devices_per_node ? kComputeBesideNodeLinks
                                                             : kComputeBesideNetwork;
  const double alongside = at_limits ? 1 : kExchangeBesideCompute;
  for (std::size_t i = 0; i < block.operations.size(); ++i) {
    if (!in_group(plan, block.operations[i], Axis::tensor)) continue;
    const Beside with = beside(plan, block, phase, i);
    if (with.overlap.under <= 0 || with.product == kNone) continue;
    const bool pieces = with.own_rows && software(plan).tensor_parallel.product_pieces == 0;
    const double under = pieces ? with.overlap.under / ranks : with.overlap.under;
    const double product = operations[with.product].price.seconds.value * under;
    Price& price = operations[i].price;
    const double alone = price.seconds.value, exchanged = alone * alongside;
    const double hidable = with.overlap.chunks > 0 ? exchanged * (1 - 1.0 / with.overlap.chunks) : exchanged;
    const double together = std::min(hidable, product * slower);
    const double exposed = std::min(alone, exchanged - together / slower);
    price = price * (alone > 0 ? exposed / alone : 1);
    operations[i].hidden = Seconds{alone} - price.seconds;
  }
}

// Each pass of a pair offers as much compute as it hides exchanges behind, so either may provide it. What a
// pair hides is what each of its passes would hide behind its own compute.
void hide_behind_paired_pass(const Plan& plan, const Block& block, std::vector<PricedOperation>& operations,
                             const Hardware& hardware) {
  const ExpertParallelProfile& profile = software(plan).expert_parallel;
  if (profile.under <= 0 || !pairs_passes(plan.scenario.strategy.schedule)) return;
  Seconds alone, compute;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Operation& op = block.operations[i];
    if (is_expert_exchange(plan, op))
      alone += operations[i].price.seconds;
    else if (!is_collective(op.kind))
      compute += operations[i].price.seconds;
  }
  if (alone.value <= 0) return;
  const double all = std::max(1, hardware.multiprocessors);
  const double slower = all / std::max(1.0, all - profile.multiprocessors);
  const Seconds exchanged = alone * (has_ideal_kernels(plan.scenario) ? 1 : kExchangeBesideCompute);
  const Seconds together = std::min(exchanged, compute * (profile.under * slower));
  const double exposed = std::min(alone, exchanged - together * (1 / slower)) / alone;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (!is_expert_exchange(plan, block.operations[i])) continue;
    operations[i].hidden = operations[i].price.seconds * (1 - exposed);
    operations[i].price = operations[i].price * exposed;
  }
}

bool collectives_wait_for_ranks(const Scenario& scenario, const Hardware& hardware) {
  const Strategy& s = scenario.strategy;
  const bool staged = s.pipeline_parallel > 1;
  return s.devices() > hardware.devices_per_node && (staged || scenario.implementation.pipeline.stalls);
}

HostTime host_time(const Plan& plan, const Block& block, const std::vector<PricedOperation>& operations,
                   Seconds Price::*which, double factor, const Hardware& hardware) {
  const HostProfile& host = software(plan).host;
  HostTime time;
  if (host.launch.value <= 0) return time;
  const double launches = launches_an_operation(plan, block);
  const bool waits = collectives_wait_for_ranks(plan.scenario, hardware);
  Seconds around;
  if (is_layer_block(block, BlockPass::recompute)) around = host.layer_recompute;
  if (is_layer_block(block, BlockPass::backward)) around = host.layer_backward;
  around = around * (1.0 / static_cast<double>(std::max<std::size_t>(1, operations.size())));
  Seconds rest;
  for (const PricedOperation& op : operations) rest += op.price.*which;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Operation& op = block.operations[i];
    if (is_left_out(plan, block, i)) continue;
    Seconds own = host.launch * launches;
    if (is_collective(op.kind)) own = host.collective;
    if (waits && op.group >= 0 && in_group(plan, op, Axis::tensor))
      own += host.collective_rank * (plan.group(op.group).size - 1);
    if (in_pieces(plan, block, i)) own = own + host.launch * 2;
    if (op.kind == OpKind::adamw && host.parameter.value > 0)
      own = host.parameter * (static_cast<double>(op.operands.size()) / 5);
    time.launches += (own + around) * factor;
    time.ahead = std::max(time.ahead, time.launches + rest);
    rest = rest - operations[i].price.*which;
  }
  return time;
}

double interference(const Scenario& scenario, const Hardware& hardware) {
  constexpr double kStandsStill = 1e9;
  // The cores that compute also copy what the ranks on a processor exchange.
  if (hardware.is_cpu) return kStandsStill;
  if (scenario.implementation.runs_here || has_ideal_kernels(scenario)) return 1;
  return scenario.strategy.devices() <= hardware.devices_per_node ? kComputeBesideNodeLinks
                                                                  : kComputeBesideNetwork;
}

HostWork work_before_pass(const Scenario& scenario) {
  const HostProfile& host = scenario.implementation.host;
  if (host.launch.value <= 0) return {};
  if (!host.waits_around_passes) return {host.pass, false};
  return {host.pass + host.wait, true};
}

HostWork work_of_transfer(const Scenario& scenario, bool forward, bool sends, const Hardware& hardware) {
  const PipelineProfile& pipeline = scenario.implementation.pipeline;
  const bool waits = scenario.strategy.virtual_pipeline > 1 ? pipeline.waits_interleaved : pipeline.waits;
  // Both ends take part in the exchange before the data; the receiver spends its part waiting. A stall blocks
  // both ends. An end that already waits loses no extra time.
  const bool stalls = pipeline.stalls && scenario.strategy.devices() > hardware.devices_per_node;
  const Seconds stall = stalls ? pipeline.stall : Seconds{};
  if (!sends) return {stall, waits};
  const int messages = forward ? pipeline.messages_forward : pipeline.messages_backward;
  return {pipeline.message * messages + stall, waits};
}

HostWork work_before_gather(const Scenario& scenario) {
  return {scenario.implementation.host.unit_hook, false};
}

std::vector<HostWork> host_work(const Plan& plan, const Program& program, const Hardware& hardware) {
  std::vector<HostWork> work(program.actions.size());
  // Accumulated gradients are set to zero before anything else. A stage that has none begins without this:
  // the host still does its work for a step, and waits for no other stage.
  const auto first = std::ranges::find(program.actions, kComputeStream, &Action::stream);
  const bool begins_by_itself =
      plan.scenario.workload.task == Task::train &&
      plan.scenario.implementation.memory.weight_gradient != WeightGradient::fresh &&
      first != program.actions.end() && first->phase != Phase::optimizer;
  const Action* last = nullptr;  // the last action of compute
  for (std::size_t a = 0; a < program.actions.size(); ++a) {
    const Action& action = program.actions[a];
    if (action.peer >= 0) {
      work[a] = work_of_transfer(plan.scenario, action.phase == Phase::forward, action.stream == kSendStream,
                                 hardware);
      continue;
    }
    const bool gathers = action.stream == kCollectiveStream && action.phase != Phase::optimizer &&
                         plan.block(action.block).role == BlockRole::gather;
    if (gathers) work[a] = work_before_gather(plan.scenario);
    if (action.stream != kComputeStream) continue;
    const auto direction = [](const Action& x) {
      return x.phase == Phase::recompute ? Phase::backward : x.phase;
    };
    const bool begins = !last || direction(*last) != direction(action) ||
                        last->micro_batch != action.micro_batch || last->chunk != action.chunk;
    if (begins) work[a] = work_before_pass(plan.scenario);
    if (!last && !begins_by_itself) work[a].before += software(plan).host.step;
    last = &action;
  }
  if (begins_by_itself)
    work.front().before += work_before_pass(plan.scenario).before + software(plan).host.step;
  return work;
}

}  // namespace sim
