#include "sim/planner/estimate.h"

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "sim/cost/predict.h"
#include "sim/cost/software.h"
#include "sim/plan/ranks.h"
#include "sim/planner/stage_memory.h"
#include "sim/planner/step_time.h"
#include "sim/report/metrics.h"

namespace sim {
namespace {

// Strategies that agree in this run the same blocks of compute at the same prices.
struct ComputeKey {
  Strategy strategy;                                             // but for what is left out below
  std::tuple<std::int32_t, std::int32_t, std::int32_t> strides;  // between ranks that exchange in a pass
  Group expert;
  bool pipeline = false, crosses_nodes = false, several_sequences = false;
  auto fields() const {
    const Strategy& s = strategy;
    return std::tie(s.tensor_parallel, s.context_parallel, s.expert_parallel, s.expert_tensor_parallel,
                    s.sequence_parallel, s.context_parallel_comm, s.schedule, s.recompute,
                    s.recompute_interval, s.recompute_operations, strides, expert.size, expert.stride,
                    expert.outer_size, expert.outer_stride, pipeline, crosses_nodes, several_sequences);
  }
  bool operator<(const ComputeKey& o) const { return fields() < o.fields(); }
};

// A schedule that splits backward as the strategy's does.
std::string schedule_of_parts(const std::string& schedule) {
  switch (backward_parts(schedule)) {
    case BackwardParts::whole:
      return "1f1b";
    case BackwardParts::all_split:
      return "zb-h1";
    case BackwardParts::some_split:
      return "dualpipev";
  }
  return schedule;
}

// More than one layer is recomputed from a kept input: then all of a group's places have blocks.
constexpr int kSomeInterval = 3;

// Strategies that agree in this do the same to parameters and their states.
struct StateKey {
  Strategy strategy;
  auto fields() const {
    const Strategy& s = strategy;
    return std::tie(s.data_parallel, s.tensor_parallel, s.pipeline_parallel, s.context_parallel,
                    s.expert_parallel, s.expert_tensor_parallel, s.virtual_pipeline, s.zero_stage,
                    s.shard_group, s.gradient_bucket, s.sequence_parallel, s.schedule, s.rank_order,
                    s.offload_optimizer);
  }
  bool operator<(const StateKey& o) const { return fields() < o.fields(); }
};

}  // namespace

struct Estimator::Memo {
  Scenario base;
  const Calibration* calibration;
  std::map<ComputeKey, std::unique_ptr<BlockTimes>> compute_blocks;
  std::map<std::pair<const BlockTimes*, std::int64_t>, ComputeTimes> compute;
  struct States {
    BlockTimes blocks;
    StateTimes times;
    States(const Scenario& s, const Hardware& hardware, const Calibration* calibration)
        : blocks(s, hardware, calibration), times(state_times(blocks)) {}
  };
  std::map<StateKey, std::unique_ptr<States>> states;
  PipelineClock pipeline;
  std::map<std::pair<const BlockTimes*, std::int64_t>, PassMemory> pass_memory;
  std::map<std::pair<const States*, std::int64_t>, StateMemory> state_memory;
  std::map<std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t>,
           std::vector<std::vector<InFlight>>>
      moments;

  BlockTimes& compute_blocks_of(const Scenario& s);
  const ComputeTimes& compute_of(const Scenario& s, BlockTimes& blocks);
  States& states_of(const Scenario& s);
  TransferTimes transfers_of(BlockTimes& blocks, const Scenario& s) const;
  const std::vector<std::vector<InFlight>>& moments_of(const Scenario& s, std::int32_t micro_batches);
  Estimate estimate(const Scenario& s);
};

BlockTimes& Estimator::Memo::compute_blocks_of(const Scenario& s) {
  ComputeKey key;
  key.strategy = s.strategy;
  Strategy& t = key.strategy;
  const RankStrides strides = rank_strides(t);
  key.strides = {strides.tensor, strides.context, strides.data};
  if (t.expert_parallel > 1) key.expert = part_of(expert_ranks(t), t.expert_parallel);
  key.pipeline = t.pipeline_parallel > 1;
  key.crosses_nodes = key.pipeline && t.devices() > s.hardware.devices_per_node;
  key.several_sequences = s.workload.micro_batch_size > 1;
  t.schedule = schedule_of_parts(t.schedule);
  t.virtual_pipeline = 1;
  t.zero_stage = 0;
  t.shard_group = 0;
  t.prefetch = 1;
  t.gradient_bucket = 0;
  t.offload_optimizer = false;
  if (t.recompute == Recompute::sqrt || (t.recompute == Recompute::full && t.recompute_interval > 1)) {
    t.recompute = Recompute::full;
    t.recompute_interval = kSomeInterval;
  }
  auto& known = compute_blocks[key];
  if (!known) {
    Scenario with = s;
    with.strategy = key.strategy;
    if (t.recompute == Recompute::full && t.recompute_interval > 1) {
      // As many layers that a last group of one is among them, too.
      const std::int64_t pieces = t.pipeline_parallel,
                         layers = (s.model.num_hidden_layers + pieces - 1) / pieces;
      with.model.num_hidden_layers =
          pieces * ((layers + kSomeInterval - 1) / kSomeInterval * kSomeInterval + 1);
      with.implementation.pipeline.balances_head = false;
    }
    known = std::make_unique<BlockTimes>(with, base.hardware, calibration);
  }
  return *known;
}

const ComputeTimes& Estimator::Memo::compute_of(const Scenario& s, BlockTimes& blocks) {
  const auto [it, added] = compute.try_emplace({&blocks, s.workload.micro_batch_size});
  if (added) it->second = compute_times(blocks, s.workload.micro_batch_size);
  return it->second;
}

Estimator::Memo::States& Estimator::Memo::states_of(const Scenario& s) {
  StateKey key{s.strategy};
  Strategy& t = key.strategy;
  if (t.gradient_bucket == 0) t.virtual_pipeline = 1;
  if (placement_of(t.schedule) != Placement::two_directions) t.schedule = "1f1b";
  auto& known = states[key];
  if (!known) {
    Scenario with = s;
    with.strategy = key.strategy;
    with.strategy.recompute = Recompute::none;
    with.strategy.recompute_interval = 1;
    with.strategy.recompute_operations.clear();
    known = std::make_unique<States>(with, base.hardware, calibration);
  }
  return *known;
}

TransferTimes Estimator::Memo::transfers_of(BlockTimes& b, const Scenario& s) const {
  const StepBlocks& blocks = b.blocks();
  const auto of = [&](BlockId block, bool forward, bool sends) {
    ActionTime t = b.of(block, forward ? Phase::forward : Phase::backward, s.workload.micro_batch_size);
    t.work = work_of_transfer(s, forward, sends, base.hardware);
    const PipelineProfile& profile = s.implementation.pipeline;
    const bool stalls = profile.stalls_from_ranks > 0 && s.strategy.devices() >= profile.stalls_from_ranks;
    if (stalls) t.work.before += t.work.stall;
    return t;
  };
  return {.send_forward = of(blocks.send_activation, true, true),
          .send_backward = of(blocks.send_gradient, false, true),
          .receive_forward = of(blocks.receive_activation, true, false),
          .receive_backward = of(blocks.receive_gradient, false, false),
          .in_order = s.implementation.pipeline.in_order};
}

const std::vector<std::vector<InFlight>>& Estimator::Memo::moments_of(const Scenario& s,
                                                                      std::int32_t micro_batches) {
  const Strategy& t = s.strategy;
  const std::int32_t few =
      PipelineClock::enough_micro_batches(t.schedule, t.pipeline_parallel, micro_batches);
  const auto [it, added] = moments.try_emplace({t.schedule, t.pipeline_parallel, t.virtual_pipeline, few});
  if (added) it->second = in_flight(make_schedule(t.schedule, t.pipeline_parallel, t.virtual_pipeline, few));
  return it->second;
}

Estimate Estimator::Memo::estimate(const Scenario& s) {
  BlockTimes& blocks = compute_blocks_of(s);
  States& of_states = states_of(s);
  const StepShape shape = step_shape(s, blocks.blocks().kinds);
  const Plan& plan = of_states.blocks.plan();
  const StepSoftware software{.pass = work_before_pass(s),
                              .gather = work_before_gather(s),
                              .interference = {interference(plan, base.hardware)}};
  Estimate e;
  e.step = step_time(shape, compute_of(s, blocks), of_states.times, transfers_of(of_states.blocks, s),
                     software, pipeline);
  const std::int64_t micro_batch = s.workload.micro_batch_size;
  PassMemory& passes =
      pass_memory.try_emplace({&blocks, micro_batch}, PassMemory(blocks, micro_batch)).first->second;
  const auto [states_at, added] = state_memory.try_emplace({&of_states, micro_batch});
  if (added) states_at->second = sim::state_memory(of_states.blocks, micro_batch);
  const auto& in_flight = moments_of(s, shape.micro_batches);
  for (std::size_t stage = 0; stage < shape.pieces.size(); ++stage) {
    std::vector<PieceMemory> chunks;
    for (const Piece& p : shape.pieces[stage]) chunks.push_back(passes.of(p, s.strategy));
    e.memory = std::max(e.memory, peak_of_stage(shape, stage, chunks, states_at->second, in_flight[stage]));
  }
  return e;
}

Estimator::Estimator(const Scenario& base, const Calibration* calibration)
    : memo_(new Memo{.base = base,
                     .calibration = calibration,
                     .compute_blocks = {},
                     .compute = {},
                     .states = {},
                     .pipeline = {},
                     .pass_memory = {},
                     .state_memory = {},
                     .moments = {}}) {}
Estimator::~Estimator() = default;
Estimator::Estimator(Estimator&&) noexcept = default;
Estimator& Estimator::operator=(Estimator&&) noexcept = default;

Estimate Estimator::estimate(const Strategy& strategy, const Workload& workload) {
  Scenario s = memo_->base;
  s.strategy = strategy;
  s.workload = workload;
  // What these plans do is run: samples of kernels that were timed here depend on all that a plan touches,
  // and copies of activations on all that goes on beside them.
  const bool runs =
      strategy.offload_activations || (memo_->calibration && !memo_->calibration->samples.empty());
  if (!runs) return memo_->estimate(s);
  const Report report = predict(s, memo_->calibration);
  return {report.step_time, peak_memory(report)};
}

Estimate estimate(const Scenario& scenario, const Calibration* calibration) {
  const std::vector<Problem> problems = validate(scenario);
  if (!problems.empty()) throw std::invalid_argument(problems[0].field + ": " + problems[0].message);
  if (scenario.workload.task != Task::train)
    throw std::invalid_argument("workload.task: must be train: estimates are of training steps");
  return Estimator(scenario, calibration).estimate(scenario.strategy, scenario.workload);
}

}  // namespace sim
