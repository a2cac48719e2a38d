#include "sim/planner/search_space.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "sim/plan/legality.h"
#include "sim/plan/schedule.h"

namespace sim {
namespace {

// Calls visit(name, values) for each field, in the order in which they are listed.
template <class Space, class Visit>
void for_each_field(Space& space, Visit visit) {
  visit("devices", space.devices);
  visit("global_batch_size", space.global_batch_size);
  visit("rank_order", space.rank_order);
  visit("tensor_parallel", space.tensor_parallel);
  visit("context_parallel", space.context_parallel);
  visit("expert_parallel", space.expert_parallel);
  visit("expert_tensor_parallel", space.expert_tensor_parallel);
  visit("context_parallel_comm", space.context_parallel_comm);
  visit("sequence_parallel", space.sequence_parallel);
  visit("recompute", space.recompute);
  visit("offload_activations", space.offload_activations);
  visit("micro_batch_size", space.micro_batch_size);
  visit("pipeline_parallel", space.pipeline_parallel);
  visit("schedule", space.schedule);
  visit("virtual_pipeline", space.virtual_pipeline);
  visit("zero_stage", space.zero_stage);
  visit("shard_group", space.shard_group);
  visit("prefetch", space.prefetch);
  visit("gradient_bucket", space.gradient_bucket);
  visit("offload_optimizer", space.offload_optimizer);
}

template <class Integer>
std::vector<Integer> divisors(Integer of, Integer most) {
  std::vector<Integer> found;
  for (Integer d = 1; d <= most && d <= of; ++d)
    if (of % d == 0) found.push_back(d);
  return found;
}

// Degrees that divide any of the numbers of devices.
std::vector<int> degrees(const std::vector<int>& devices, std::int64_t most) {
  std::vector<int> all;
  for (const int n : devices)
    for (const int d : divisors(n, static_cast<int>(std::min<std::int64_t>(most, n)))) all.push_back(d);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// Of a pipeline that is one.
int least_stages(const std::vector<int>& pipeline_parallel) {
  const auto several =
      std::find_if(pipeline_parallel.begin(), pipeline_parallel.end(), [](int p) { return p > 1; });
  return several == pipeline_parallel.end() ? 1 : *several;
}

// Chunks a stage: those that divide the layers, and powers of two, of which V-shaped schedules need the
// first.
std::vector<int> chunks(int most, int layers) {
  std::vector<int> found;
  for (int v = 1; v <= most; ++v)
    if (layers % v == 0 || (v & (v - 1)) == 0) found.push_back(v);
  return found;
}

// Those with which a scenario has no problem that it has not without.
template <class Value, class Set>
void keep_possible(std::vector<Value>& values, const Scenario& base, Set set) {
  std::erase_if(values, [&](const Value& v) {
    Scenario s = base;
    set(s, v);
    return !validate(s).empty();
  });
}

// A scenario of the base's model on enough devices to be divided in one way alone.
Scenario undivided(const Scenario& base) {
  Scenario s = base;
  s.strategy = {};
  s.strategy.rank_order = base.strategy.rank_order;
  s.strategy.context_parallel_comm = base.strategy.context_parallel_comm;
  s.workload.micro_batch_size = 1;
  return s;
}

}  // namespace

SearchSpace space_of(const Scenario& base) {
  const Strategy& s = base.strategy;
  const Workload& w = base.workload;
  return {.base = base,
          .devices = {s.devices()},
          .global_batch_size = {w.global_batch_size},
          .rank_order = {s.rank_order},
          .tensor_parallel = {s.tensor_parallel},
          .context_parallel = {s.context_parallel},
          .expert_parallel = {s.expert_parallel},
          .expert_tensor_parallel = {s.expert_tensor_parallel},
          .context_parallel_comm = {s.context_parallel_comm},
          .sequence_parallel = {s.sequence_parallel},
          .recompute = {{s.recompute, s.recompute_interval}},
          .offload_activations = {s.offload_activations},
          .micro_batch_size = {w.micro_batch_size},
          .pipeline_parallel = {s.pipeline_parallel},
          .schedule = {s.schedule},
          .virtual_pipeline = {s.virtual_pipeline},
          .zero_stage = {s.zero_stage},
          .shard_group = {s.shard_group},
          .prefetch = {s.prefetch},
          .gradient_bucket = {s.gradient_bucket},
          .offload_optimizer = {s.offload_optimizer}};
}

SearchSpace every_strategy(const Scenario& base, const std::vector<int>& devices) {
  SearchSpace space = space_of(base);
  const Scenario plain = undivided(base);
  const Model& m = base.model;
  const std::int64_t layers = std::max<std::int64_t>(1, m.num_hidden_layers);
  space.devices = devices;
  space.virtual_pipeline = {1};
  space.tensor_parallel = degrees(devices, m.num_attention_heads);
  space.sequence_parallel = {false, true};
  keep_possible(space.tensor_parallel, plain, [](Scenario& s, int t) {
    s.strategy.tensor_parallel = t;
    s.strategy.expert_tensor_parallel = 0;
  });
  space.context_parallel = degrees(devices, base.workload.seq_len);
  keep_possible(space.context_parallel, plain, [](Scenario& s, int c) { s.strategy.context_parallel = c; });
  space.pipeline_parallel = degrees(devices, layers);
  if (space.pipeline_parallel.size() > 1)
    space.virtual_pipeline =
        chunks(static_cast<int>(layers) / least_stages(space.pipeline_parallel), static_cast<int>(layers));
  space.schedule.assign(schedule_names().begin(), schedule_names().end());
  // 1f1b with chunks is interleaved.
  std::erase(space.schedule, "interleaved");
  space.recompute = {{Recompute::none}, {Recompute::selective}, {Recompute::full}, {Recompute::sqrt}};
  space.micro_batch_size = divisors(base.workload.global_batch_size, base.workload.global_batch_size);
  space.zero_stage = {0, 1, 2, 3};
  space.shard_group = {0};
  if (base.hardware.devices_per_node > 1) space.shard_group.push_back(base.hardware.devices_per_node);
  if (m.has_experts()) {
    space.expert_parallel = degrees(devices, m.moe.num_experts);
    std::erase_if(space.expert_parallel, [&](int e) { return m.moe.num_experts % e != 0; });
    space.expert_tensor_parallel = {0, 1};
  }
  if (base.hardware.host_link.value > 0 && base.hardware.host_memory_bandwidth.value > 0)
    space.offload_optimizer = {false, true};
  return space;
}

std::int64_t size(const SearchSpace& space) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::int64_t n = 1;
  bool empty = false;
  for_each_field(space, [&](const char*, const auto& values) {
    const auto v = static_cast<std::int64_t>(values.size());
    empty = empty || v == 0;
    n = v > 0 && n > most / v ? most : n * v;
  });
  return empty ? 0 : n;
}

Scenario candidate(const SearchSpace& space, std::int64_t index) {
  if (index < 0 || index >= size(space))
    throw std::out_of_range("candidate " + std::to_string(index) + " of a space of " +
                            std::to_string(size(space)));
  std::vector<std::size_t> radix, digit;
  for_each_field(space, [&](const char*, const auto& values) { radix.push_back(values.size()); });
  digit.resize(radix.size());
  for (std::size_t f = radix.size(); f-- > 0;) {
    digit[f] = static_cast<std::size_t>(index % static_cast<std::int64_t>(radix[f]));
    index /= static_cast<std::int64_t>(radix[f]);
  }
  std::size_t field = 0;
  const auto next = [&](const auto& values) { return values[digit[field++]]; };
  Scenario c = space.base;
  Strategy& s = c.strategy;
  const int devices = next(space.devices);
  c.workload.global_batch_size = next(space.global_batch_size);
  s.rank_order = next(space.rank_order);
  s.tensor_parallel = next(space.tensor_parallel);
  s.context_parallel = next(space.context_parallel);
  s.expert_parallel = next(space.expert_parallel);
  s.expert_tensor_parallel = next(space.expert_tensor_parallel);
  s.context_parallel_comm = next(space.context_parallel_comm);
  s.sequence_parallel = next(space.sequence_parallel);
  const RecomputeChoice recompute = next(space.recompute);
  s.recompute = recompute.recompute;
  s.recompute_interval = recompute.interval;
  if (s.recompute != Recompute::operations) s.recompute_operations.clear();
  s.offload_activations = next(space.offload_activations);
  c.workload.micro_batch_size = next(space.micro_batch_size);
  s.pipeline_parallel = next(space.pipeline_parallel);
  s.schedule = next(space.schedule);
  s.virtual_pipeline = next(space.virtual_pipeline);
  s.zero_stage = next(space.zero_stage);
  s.shard_group = next(space.shard_group);
  s.prefetch = next(space.prefetch);
  s.gradient_bucket = next(space.gradient_bucket);
  s.offload_optimizer = next(space.offload_optimizer);
  const std::int64_t others =
      std::int64_t{s.tensor_parallel} * s.context_parallel * std::int64_t{s.pipeline_parallel};
  s.data_parallel = others > 0 && devices % others == 0 ? static_cast<int>(devices / others) : 0;
  return c;
}

std::vector<Problem> problems(const SearchSpace& space) {
  std::vector<Problem> found;
  if (space.base.workload.task != Task::train)
    found.push_back({"workload.task", "must be train: the planner searches strategies of training"});
  for_each_field(space, [&](const char* name, const auto& values) {
    if (values.empty()) found.push_back({std::string("search.") + name, "must have a value to try at least"});
  });
  return found;
}

}  // namespace sim
