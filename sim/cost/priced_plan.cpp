#include "sim/cost/priced_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "sim/cost/fused_operations.h"
#include "sim/cost/side_passes.h"
#include "sim/cost/software.h"
#include "sim/plan/ranks.h"

namespace sim {
namespace {

// Whether the formulas of the kind depend on the length of keys and values.
bool depends_on_length(OpKind kind) {
  static const std::array<bool, kOpKinds> kDepends = [] {
    std::array<bool, kOpKinds> depends{};
    for (std::size_t i = 0; i < kOpKinds; ++i) {
      const KindInfo& k = kKinds[i];
      depends[i] =
          depends_on_length(k.arithmetic.flops) || depends_on_length(k.arithmetic.model_flops) ||
          std::ranges::any_of(k.operands, [](const OperandInfo& o) { return depends_on_length(o.touched); });
    }
    return depends;
  }();
  return kDepends[static_cast<std::size_t>(kind)];
}

bool needs_length(const Plan& plan, const Operation& op) {
  const auto uses_length = [](const Extent& e) { return e.kv_length > 0; };
  return depends_on_length(op.kind) || op.whole_sequence || uses_length(op.dims.rows) ||
         uses_length(op.dims.cols) || uses_length(op.dims.inner) ||
         std::ranges::any_of(op.operands, [&](const Operand& o) {
           if (o.buffer == kNoBuffer) return false;
           const auto& shape = plan.buffer(o.buffer).shape;
           return std::ranges::any_of(shape, uses_length);
         });
}

bool accumulates(const Operation& op) {
  return std::ranges::any_of(op.operands, [](const Operand& o) { return o.access == Access::accumulate; });
}

// The time of a block whose operations run one after the other, except those that run beside the next one.
Seconds run_in_turn(const std::vector<Operation>& operations, std::vector<PricedOperation>& priced,
                    Seconds Price::*time, Seconds PricedOperation::*start) {
  Seconds now, beside;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (start) priced[i].*start = now;
    const Seconds end = now + priced[i].price.*time;
    if (operations[i].beside_next) {
      beside = end;
    } else {
      now = std::max(end, beside);
      beside = {};
    }
  }
  return std::max(now, beside);
}

// The blocks that a plan's programs run, each once for every phase and set of variables.
class PricedBlocks {
 public:
  PricedBlocks(const Plan& plan, const Hardware& hardware, const Calibration* calibration)
      : pricer_(plan, hardware, calibration), recent_(plan.blocks.size(), static_cast<std::size_t>(-1)) {}

  // Index into blocks(). All programs of a plan share the priced blocks.
  std::size_t block(const Action& a) {
    std::size_t& recent = recent_[static_cast<std::size_t>(a.block)];
    const Variables v = pricer_.relevant(a.block, a.variables);
    const bool again =
        recent < blocks_.size() && blocks_[recent].phase == a.phase && blocks_[recent].variables == v;
    if (again) return recent;
    const auto [it, added] = index_.try_emplace({a.block, a.phase, v}, blocks_.size());
    if (added) blocks_.push_back(pricer_.price(a.block, a.phase, v));
    return recent = it->second;
  }
  std::vector<PricedBlock> take() { return std::move(blocks_); }

 private:
  BlockPricer pricer_;
  std::vector<PricedBlock> blocks_;
  std::map<std::tuple<BlockId, Phase, Variables>, std::size_t> index_;
  std::vector<std::size_t> recent_;  // for each block, the last one found
};

}  // namespace

Bytes working_set_of(const Plan& plan, const Calibration* calibration) {
  if (!calibration || calibration->samples.empty()) return {};
  const MemoryPlan memory = plan_memory(plan, 0, Addresses::none);
  const Workload& workload = plan.scenario.workload;
  if (workload.task != Task::generate) return memory.live_peak;
  const std::int64_t places = workload.prompt_length + workload.max_new_tokens;
  const Bytes cache = memory.at_peak[BufferClass::kv_cache];
  return memory.live_peak - Bytes{cache.value / (2 * places) * workload.max_new_tokens};
}

BlockPricer::BlockPricer(const Plan& plan, const Hardware& hardware, const Calibration* calibration)
    : plan_(plan),
      hardware_(hardware),
      calibration_(calibration),
      working_set_(working_set_of(plan, calibration)),
      pairs_(fusable_pairs(plan, hardware)) {
  add_new_blocks();
}

void BlockPricer::add_new_blocks() {
  of_length_.reserve(plan_.blocks.size());
  for (std::size_t b = of_length_.size(); b < plan_.blocks.size(); ++b) {
    std::unique_ptr<OfLength>& of_block = of_length_.emplace_back();
    const std::vector<Operation>& operations = plan_.blocks[b].operations;
    accumulates_.push_back(std::ranges::any_of(operations, accumulates));
    for (std::size_t i = 0; i < operations.size(); ++i) {
      bool needs = needs_length(plan_, operations[i]);
      for (std::size_t j = i; !needs && is_pair(b, j); ++j) needs = needs_length(plan_, operations[j + 1]);
      if (!needs) continue;
      if (!of_block)
        of_block = std::make_unique<OfLength>(OfLength{std::vector<bool>(operations.size()),
                                                       decltype(OfLength::operations)(operations.size())});
      of_block->needs_length[i] = true;
    }
  }
}

void BlockPricer::price_operations(BlockId id, Phase phase, const Variables& variables,
                                   std::vector<PricedOperation>& priced) {
  const Block& block = plan_.block(id);
  priced.clear();
  priced.reserve(block.operations.size());
  for (std::size_t i = 0; i < block.operations.size(); ++i) {
    priced.push_back(operation(static_cast<std::size_t>(id), i, variables));
    // The mathematics does not need work that is done a second time.
    if (phase != Phase::recompute) continue;
    PricedOperation& again = priced.back();
    again.work.model_flops = {};
    const double share = recomputed_share(plan_, block.operations[i]);
    again.work.flops = again.work.flops * share;
    again.price = again.price * share;
  }
  hold_clocks_back(plan_, block, priced, hardware_, calibration_);
  hide_behind_products(plan_, block, phase, priced, hardware_);
  hide_behind_paired_pass(plan_, block, priced, hardware_);
}

HostTime BlockPricer::host_of(BlockId id, const std::vector<PricedOperation>& operations,
                              Seconds Price::*which, double factor) const {
  return host_time(plan_, plan_.block(id), operations, which, factor, hardware_);
}

PricedBlock BlockPricer::price(BlockId id, Phase phase, const Variables& variables) {
  PricedBlock priced;
  priced.block = id;
  priced.phase = phase;
  priced.variables = variables;
  price_operations(id, phase, variables, priced.operations);
  const std::vector<Operation>& operations = plan_.block(id).operations;
  priced.duration = run_in_turn(operations, priced.operations, &Price::seconds, &PricedOperation::start);
  priced.low = run_in_turn(operations, priced.operations, &Price::low, nullptr);
  priced.high = run_in_turn(operations, priced.operations, &Price::high, nullptr);
  const double uncertainty = plan_.scenario.implementation.host.uncertainty;
  priced.host = host_of(id, priced.operations, &Price::seconds, 1);
  priced.host_low = host_of(id, priced.operations, &Price::low, 1 / uncertainty);
  priced.host_high = host_of(id, priced.operations, &Price::high, uncertainty);
  return priced;
}

BlockPricer::Expected BlockPricer::expected(BlockId id, Phase phase, const Variables& variables) {
  std::vector<PricedOperation>& priced = of_expected_;
  price_operations(id, phase, variables, priced);
  const std::vector<Operation>& operations = plan_.block(id).operations;
  return {run_in_turn(operations, priced, &Price::seconds, nullptr), host_of(id, priced, &Price::seconds, 1)};
}

PricedOperation BlockPricer::operation(std::size_t block, std::size_t index, const Variables& variables) {
  OfLength* of_length = of_length_[block].get();
  if (!of_length) return priced(block, index, relevant(false, accumulates_[block], variables));
  const Variables v = relevant(of_length->needs_length[index], accumulates_[block], variables);
  auto& known = of_length->operations[index];
  // Actions that follow each other often have the same variables.
  if (!known || known->first != v) known.emplace(v, priced(block, index, v));
  return known->second;
}

PricedOperation BlockPricer::priced(std::size_t index_of_block, std::size_t index, const Variables& v) const {
  const Block& block = plan_.blocks[index_of_block];
  const Operation& op = block.operations[index];
  const auto with = [&](const Group* group, Bytes for_neighbours = {}) {
    return price_with_software(plan_, block, index, v, hardware_, calibration_, group, working_set_,
                               for_neighbours);
  };
  if (index_of_block < pairs_.size()) {
    const std::vector<bool>& pairs = pairs_[index_of_block];
    if (const std::size_t kernel = kernel_of(plan_, block, pairs, index, v); kernel != index) {
      PricedOperation neighbour{work_of(plan_, op, v), {}};
      neighbour.kernel = static_cast<std::ptrdiff_t>(kernel) - static_cast<std::ptrdiff_t>(index);
      return neighbour;
    }
    if (op.group < 0) return with(nullptr, traffic_for_neighbours(plan_, block, pairs, index, v));
  }
  if (op.group < 0) return with(nullptr);
  Group group = plan_.group(op.group);
  if (op.kind == OpKind::send) group.size = 2;  // neighbours
  if (op.kind == OpKind::exchange) {            // all ranks of a ring at once: the longest way counts
    const bool in_node = ranks_in_node(group, hardware_.devices_per_node) == group.size;
    group = {group.axis, 2, in_node ? 1 : hardware_.devices_per_node};
  }
  return with(&group);
}

PricedPlan price_plan(const Plan& plan, const Hardware& hardware, const Calibration* calibration) {
  PricedPlan priced;
  PricedBlocks pricer(plan, hardware, calibration);
  for (const Program& program : plan.programs) {
    std::vector<std::size_t>& blocks = priced.block_of.emplace_back();
    blocks.reserve(program.actions.size());
    for (const Action& a : program.actions) blocks.push_back(pricer.block(a));
  }
  priced.blocks = pricer.take();
  std::vector<std::vector<HostWork>> host;
  for (const Program& program : plan.programs) host.push_back(host_work(plan, program, hardware));
  // For a long generation these arrays are larger than a cache, so all three runs share one place.
  std::vector<std::vector<ActionTime>> times(priced.block_of.size());
  const auto run_with = [&](Seconds PricedBlock::*duration, HostTime PricedBlock::*of_host,
                            double host_factor) {
    for (std::size_t p = 0; p < priced.block_of.size(); ++p) {
      std::vector<ActionTime>& of_program = times[p];
      of_program.clear();
      of_program.reserve(priced.block_of[p].size());
      for (std::size_t a = 0; a < priced.block_of[p].size(); ++a) {
        const PricedBlock& block = priced.block(p, a);
        HostWork work = host[p][a];
        work.before = work.before * host_factor;
        of_program.push_back({block.*duration, block.*of_host, work});
      }
    }
    return execute(plan, times, plan.scenario.implementation.pipeline.in_order,
                   Interference{interference(plan.scenario, hardware)});
  };
  const double uncertainty = plan.scenario.implementation.host.uncertainty;
  priced.expected = run_with(&PricedBlock::duration, &PricedBlock::host, 1);
  priced.low = run_with(&PricedBlock::low, &PricedBlock::host_low, 1 / uncertainty);
  priced.high = run_with(&PricedBlock::high, &PricedBlock::host_high, uncertainty);
  return priced;
}

OperationClock::OperationClock(const Plan& plan, const PricedPlan& priced, std::size_t program)
    : action_times_(action_times(plan, program)), priced_(priced), program_(program) {}

Seconds OperationClock::at(OpTime t) {
  const auto holds = [&](std::size_t action) {
    return action_times_[action] <= t &&
           (action + 1 == action_times_.size() || t < action_times_[action + 1]);
  };
  std::size_t& action = action_;
  if (!holds(action) && (action + 1 == action_times_.size() || !holds(++action)))
    action = static_cast<std::size_t>(std::upper_bound(action_times_.begin(), action_times_.end(), t) -
                                      action_times_.begin()) -
             1;
  const PricedBlock& b = priced_.block(program_, action);
  const Seconds start = priced_.expected.programs[program_].start[action];
  const auto operation = static_cast<std::size_t>(t - action_times_[action]);
  return start + (operation < b.operations.size() ? b.operations[operation].start : b.duration);
}

std::vector<MemoryTimePoint> memory_over_time(const Plan& plan, const MemoryPlan& memory,
                                              const PricedPlan& priced, std::size_t most_points) {
  constexpr std::size_t kLeastOfARound = 8;
  const auto rounds = static_cast<std::size_t>(memory.micro_batches.count);
  OperationClock clock(plan, priced, memory.program);
  std::vector<MemoryTimePoint> points;
  for (const MemoryPoint& p : memory_timeline(plan, memory, std::max(kLeastOfARound * rounds, most_points))) {
    const Seconds time = clock.at(p.time);
    // Streams run beside each other, so an action that the program names later may begin earlier.
    points.push_back({points.empty() ? time : std::max(time, points.back().time), p.bytes});
  }
  return points;
}

}  // namespace sim
