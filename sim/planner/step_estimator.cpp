#include "sim/planner/step_estimator.h"

#include <algorithm>
#include <map>
#include <memory_resource>
#include <tuple>
#include <utility>

#include "sim/cost/predict.h"
#include "sim/cost/software.h"
#include "sim/plan/builder.h"
#include "sim/plan/layer_division.h"
#include "sim/plan/ranks.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/fields.h"

namespace sim {
namespace {

std::int32_t micro_batches_of(const Scenario& s) {
  return static_cast<std::int32_t>(s.workload.global_batch_size / s.strategy.data_parallel /
                                   s.workload.micro_batch_size);
}

// All schedules of a pipeline have one plan, with backward passes both whole and in two parts. But where an
// operation stands for several kernels, the whole pass, if there is one, tells how many they are.
BackwardParts parts_of_plan(const Scenario& s) {
  const BackwardParts parts = backward_parts(s.strategy.schedule);
  const bool alone = parts == BackwardParts::all_split && s.implementation.kernels.launches_backward > 0;
  return alone ? parts : BackwardParts::some_split;
}

void forget_recompute(Strategy& s) {
  s.recompute = Recompute::none;
  s.recompute_interval = 1;
  s.recompute_operations.clear();
}

bool has_tensors_of_several_sequences(const Scenario& s) {
  const std::vector<ExtraTensor>& tensors = s.implementation.memory.tensors;
  return std::ranges::any_of(tensors, [](const ExtraTensor& t) { return t.several_sequences_only; });
}

}  // namespace

// Strategies with the same key run the same blocks of compute at the same prices. Fields of `strategy` that
// do not matter for these have their defaults. A field that nobody thought of here costs time, but makes no
// price stale.
struct StepEstimator::ComputeKey {
  Strategy strategy;
  std::tuple<std::int32_t, std::int32_t, std::int32_t> strides;  // between ranks that exchange in a pass
  Group expert;
  BackwardParts parts = BackwardParts::whole;
  bool pipeline = false, replicas = false, waits_for_ranks = false;
  bool pairs = false;              // experts' exchanges hide behind the other pass of a pair
  bool several_sequences = false;  // and tensors that one sequence does not have
  auto others() const {
    return std::tie(strides, expert.size, expert.stride, expert.outer_size, expert.outer_stride, parts,
                    pipeline, replicas, pairs, waits_for_ranks, several_sequences);
  }
  bool operator<(const ComputeKey& o) const {
    if (others() != o.others()) return others() < o.others();
    return less_by_fields(strategy, o.strategy);
  }
};

// The same for states.
struct StepEstimator::StateKey {
  Strategy strategy;
  bool operator<(const StateKey& o) const { return less_by_fields(strategy, o.strategy); }
};

struct StepEstimator::Known {
  // The base with the strategy and the workload of whatever is being found.
  const Scenario& with(const Strategy& strategy, const Workload& with_workload) {
    base.strategy = strategy;
    base.workload = with_workload;
    return base;
  }

  Scenario base;
  const Calibration* calibration;
  std::shared_ptr<Schedules> schedules;
  Workload workload = {};  // all below is found for this workload, except for its batches
  // Memory of passes that are found and forgotten again and again.
  std::pmr::unsynchronized_pool_resource passes_memory{
      {.max_blocks_per_chunk = 1, .largest_required_pool_block = std::size_t{4} << 20}};
  struct Found {
    std::map<ComputeKey, std::unique_ptr<BlockTimes>> compute_blocks;
    std::map<std::tuple<const BlockTimes*, BackwardParts, std::int64_t>, ComputeTimes> compute;
    std::map<const BlockTimes*, PassMemory> memory;
    std::map<StateKey, std::unique_ptr<UnbucketedStates>> unbucketed;
    std::map<std::pair<const UnbucketedStates*, BucketLayers>, StepStates> states;
    std::map<StateKey, std::unique_ptr<BlockTimes>> transfer_blocks;
    StageNumbers stage_numbers;
    // Numbers of what passes exchange: without buckets, and with buckets by the number without.
    std::map<StateKey, int> exchanges;
    std::map<std::pair<int, BucketLayers>, int> in_buckets;
    int next_exchange() const { return static_cast<int>(exchanges.size() + in_buckets.size()); }
  } found = {};
};

StepEstimator::StepEstimator(const Scenario& base, const Calibration* calibration,
                             std::shared_ptr<Schedules> schedules)
    : known_(new Known{.base = base, .calibration = calibration, .schedules = std::move(schedules)}) {}

void StepEstimator::forget_layout() {
  known_->found = {};
}

void StepEstimator::forget_other_workloads(const Scenario& s) {
  Workload workload = s.workload;
  workload.micro_batch_size = workload.global_batch_size = 1;  // what is found is asked for by batch
  if (workload == known_->workload) return;
  forget_layout();
  known_->workload = workload;
}

BlockTimes& StepEstimator::compute_blocks(const Scenario& s) {
  // More than one layer is recomputed from a kept input: then all of a group's places have blocks.
  constexpr int kSomeInterval = 3;
  ComputeKey key;
  key.strategy = s.strategy;
  Strategy& t = key.strategy;
  const RankStrides strides = rank_strides(t);
  key.strides = {strides.tensor, strides.context, strides.data};
  if (t.expert_parallel > 1) key.expert = part_of(expert_ranks(t), t.expert_parallel);
  key.pipeline = t.pipeline_parallel > 1;
  key.replicas = data_ranks(t) > 1;
  key.waits_for_ranks = collectives_wait_for_ranks(s, s.hardware);
  key.several_sequences = s.workload.micro_batch_size > 1 && has_tensors_of_several_sequences(s);
  if (key.pipeline) key.parts = parts_of_plan(s);
  key.pairs = t.expert_parallel > 1 && pairs_passes(t.schedule);
  t.schedule = key.pairs ? plainest_schedule(Placement::v, true) : kPlainSchedule;
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
  // Strides, groups and `replicas` say what of the layout matters.
  t.data_parallel = t.pipeline_parallel = 1;
  t.rank_order = kDefaultRankOrder;
  t.offload_activations = false;
  auto& known = known_->found.compute_blocks[key];
  if (known) return *known;
  Scenario with = s;
  with.strategy = t;
  with.strategy.data_parallel = s.strategy.data_parallel;
  with.strategy.pipeline_parallel = s.strategy.pipeline_parallel;
  with.strategy.rank_order = s.strategy.rank_order;
  with.strategy.offload_activations = s.strategy.offload_activations;
  if (t.recompute == Recompute::full && t.recompute_interval > 1) {
    // Enough layers that a last group of one is among them, too. The last layer's kind is also that of the
    // modules that predict further tokens.
    const std::int64_t pieces = s.strategy.pipeline_parallel,
                       layers = (s.model.num_hidden_layers + pieces - 1) / pieces;
    const std::int64_t own = s.model.num_hidden_layers;
    std::int64_t& with_layers = with.model.num_hidden_layers;
    with_layers = pieces * ((layers + kSomeInterval - 1) / kSomeInterval * kSomeInterval + 1);
    // Kinds recur, but for the dense layers that a model may begin with.
    if (with.model.moe.first_k_dense_replace >= own) with.model.moe.first_k_dense_replace = kMostLayers;
    if (s.model.num_nextn_predict_layers > 0)
      while (kind_of_layer(with, with_layers - 1) != kind_of_layer(s, own - 1)) ++with_layers;
    divide_evenly(with);
  }
  known = std::make_unique<BlockTimes>(make_step_plan(with, key.parts), known_->base.hardware,
                                       known_->calibration);
  return *known;
}

TransferTimes StepEstimator::transfers(const Scenario& s) {
  StateKey key{s.strategy};
  Strategy& t = key.strategy;
  t.zero_stage = t.shard_group = 0;
  t.prefetch = 1;
  t.gradient_bucket = 0;
  t.offload_optimizer = t.offload_activations = false;
  t.virtual_pipeline = 1;
  t.schedule = kPlainSchedule;
  forget_recompute(t);
  auto& known = known_->found.transfer_blocks[key];
  if (!known)
    known = std::make_unique<BlockTimes>(make_transfer_plan(known_->with(t, s.workload)),
                                         known_->base.hardware, known_->calibration);
  const StepBlocks& blocks = known->blocks();
  const auto of = [&](BlockId block, bool forward, bool sends) {
    ActionTime time =
        known->of(block, forward ? Phase::forward : Phase::backward, s.workload.micro_batch_size);
    time.work = work_of_transfer(s, forward, sends, known_->base.hardware);
    return time;
  };
  return {.send_forward = of(blocks.send_activation, true, true),
          .send_backward = of(blocks.send_gradient, false, true),
          .receive_forward = of(blocks.receive_activation, true, false),
          .receive_backward = of(blocks.receive_gradient, false, false),
          .in_order = s.implementation.pipeline.in_order};
}

StepPasses StepEstimator::passes(const Scenario& s) {
  forget_other_workloads(s);
  BlockTimes& blocks = compute_blocks(s);
  const std::int64_t sequences = s.workload.micro_batch_size;
  const BackwardParts parts = backward_parts(s.strategy.schedule);
  const auto [compute, added] = known_->found.compute.try_emplace({&blocks, parts, sequences});
  if (added) compute->second = compute_times(blocks, parts, sequences);
  const PassMemory& memory = known_->found.memory.try_emplace(&blocks, blocks).first->second;
  // Nothing sets gradients to zero before the first backward pass.
  const bool begins_with_pass = s.implementation.memory.weight_gradient == WeightGradient::fresh;
  const TransferTimes sent = transfers(s);
  const auto takes_part = [](const HostTime& t, const HostWork& w) {
    return t.launches.value > 0 || w.waits || w.before.value > 0;
  };
  bool hosts = s.implementation.host.launch.value > 0;
  for (const ActionTime* t :
       {&sent.send_forward, &sent.send_backward, &sent.receive_forward, &sent.receive_backward})
    hosts = hosts || takes_part(t->host, t->work);
  return {blocks,
          compute->second,
          memory,
          known_->found.stage_numbers,
          sent,
          {.pass = work_before_pass(s),
           .before_first_pass = begins_with_pass ? s.implementation.host.step : Seconds{},
           .interference = {interference(s, known_->base.hardware)},
           .hosts = hosts},
          &known_->passes_memory};
}

UnbucketedStates& StepEstimator::unbucketed(const Scenario& s, StatePlaces places) {
  StateKey key{s.strategy};
  Strategy& t = key.strategy;
  t.gradient_bucket = 0;
  t.virtual_pipeline = places == StatePlaces::ends_meet ? 2 : 1;
  if (places == StatePlaces::ends_meet) t.schedule = plainest_schedule(Placement::v, false);
  if (places == StatePlaces::apart) t.schedule = kPlainSchedule;
  if (shard_ranks(t) == data_ranks(t)) t.shard_group = 0;  // 0 stands for all of them
  t.prefetch = 1;
  t.offload_activations = false;
  forget_recompute(t);
  auto& known = known_->found.unbucketed[key];
  if (known) return *known;
  StateKey on_device = key;  // passes know nothing of where the optimizer runs
  on_device.strategy.offload_optimizer = false;
  Known::Found& found = known_->found;
  const int exchange = found.exchanges.try_emplace(on_device, found.next_exchange()).first->second;
  const Scenario& with = known_->with(t, s.workload);
  known = std::make_unique<UnbucketedStates>(with, with.hardware, known_->calibration, compute_blocks(with),
                                             exchange);
  return *known;
}

const StepStates& StepEstimator::states(const Scenario& s) {
  forget_other_workloads(s);
  UnbucketedStates& base = unbucketed(s, state_places(s));
  // Many buckets are too small for a second layer.
  const BucketLayers bucket = base.blocks.layers_in(s.strategy.gradient_bucket);
  const auto known = known_->found.states.find({&base, bucket});
  if (known != known_->found.states.end()) return known->second;
  Known::Found& found = known_->found;
  const int exchange =
      found.in_buckets.try_emplace({base.exchange, bucket}, found.next_exchange()).first->second;
  return found.states.try_emplace({&base, bucket}, StepStates{base, bucket, exchange}).first->second;
}

const ScheduleFacts& StepEstimator::schedule(const Scenario& s) {
  const Strategy& t = s.strategy;
  return known_->schedules->of(t.schedule, t.pipeline_parallel, t.virtual_pipeline, micro_batches_of(s),
                               s.implementation.memory.weight_gradient == WeightGradient::fresh);
}

bool StepEstimator::must_run(const Strategy& strategy) const {
  // Where a chunk ends long before the step, its gradients are reduced beside passes of other chunks. The
  // composition does not slow these passes down for it.
  const bool reduces_beside_others = strategy.virtual_pipeline > 1 && data_ranks(strategy) > 1 &&
                                     traits_of_schedule(strategy.schedule).filling == 0;
  // A processor computes nothing while it exchanges. Exchanges that one pass leaves over stop the first units
  // of the next pass, and the composition does not carry them that far.
  const bool exchanges_stop_passes = known_->base.hardware.is_cpu;
  return reduces_beside_others || exchanges_stop_passes || strategy.offload_activations ||
         known_->base.model.is_hybrid() || trains_adapters(known_->base.workload) ||
         known_->base.workload.measure_noise ||
         (known_->calibration && !known_->calibration->samples.empty());
}

Estimate StepEstimator::by_running(const Scenario& s) const {
  const Plan plan = make_plan(s);
  return {predict_step(plan, s.hardware, known_->calibration).seconds, reserved_memory(plan)};
}

}  // namespace sim
