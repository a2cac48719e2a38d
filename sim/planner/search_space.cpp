#include "sim/planner/search_space.h"

#include <algorithm>

#include "sim/plan/legality.h"
#include "sim/plan/schedule.h"
#include "sim/planner/search_parts.h"
#include "sim/planner/searched_fields.h"

namespace sim {
namespace {

// The field of a scenario that a search gives values.
int value_of(const Scenario& s, std::string_view /*devices*/) {
  return s.strategy.devices();
}
RecomputeChoice value_of(const Scenario& s, Recompute Strategy::*) {
  return {s.strategy.recompute, s.strategy.recompute_interval};
}
template <class Part, class T>
T value_of(const Scenario& s, T Part::*member) {
  return s.*kPart<Part>.*member;
}

void set(Scenario&, std::string_view /*devices*/, int) {}
void set(Scenario& s, Recompute Strategy::*, const RecomputeChoice& choice) {
  s.strategy.recompute = choice.recompute;
  s.strategy.recompute_interval = choice.interval;
  if (choice.recompute != Recompute::operations) s.strategy.recompute_operations.clear();
}
template <class Part, class T>
void set(Scenario& s, T Part::*member, const T& value) {
  s.*kPart<Part>.*member = value;
}

// The least number of stages of a pipeline that has more than one.
int least_stages(const std::vector<int>& pipeline_parallel) {
  const auto several = std::ranges::find_if(pipeline_parallel, [](int p) { return p > 1; });
  return several == pipeline_parallel.end() ? 1 : *several;
}

// Numbers of chunks for a stage: those that divide the layers, and powers of two. V-shaped schedules need the
// first power of two.
std::vector<int> chunks(int most, int layers) {
  std::vector<int> found;
  for (int v = 1; v <= most; ++v)
    if (layers % v == 0 || (v & (v - 1)) == 0) found.push_back(v);
  return found;
}

// Keeps the values that give a scenario no problem that it does not have without them.
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
  SearchSpace space;
  space.base = base;
  for_each_searched(space, [&](auto member, auto& values) { values.push_back(value_of(base, member)); });
  return space;
}

SearchSpace every_strategy(const Scenario& base, const std::vector<int>& devices) {
  SearchSpace space = space_of(base);
  const Scenario plain = undivided(base);
  const Model& m = base.model;
  const std::int64_t layers = std::max<std::int64_t>(1, m.num_hidden_layers);
  space.devices = devices;
  space.virtual_pipeline = {1};
  space.tensor_parallel = divisors(devices, m.num_attention_heads);
  space.sequence_parallel = {false, true};
  keep_possible(space.tensor_parallel, plain, [](Scenario& s, int t) {
    s.strategy.tensor_parallel = t;
    s.strategy.expert_tensor_parallel = 0;
  });
  space.context_parallel = divisors(devices, base.workload.seq_len);
  keep_possible(space.context_parallel, plain, [](Scenario& s, int c) { s.strategy.context_parallel = c; });
  space.pipeline_parallel = divisors(devices, layers);
  if (space.pipeline_parallel.size() > 1)
    space.virtual_pipeline =
        chunks(static_cast<int>(layers) / least_stages(space.pipeline_parallel), static_cast<int>(layers));
  space.schedule.assign(kScheduleNames.begin(), kScheduleNames.end());
  // 1f1b with chunks is interleaved. Breadth first has the same bubble and holds all micro-batches.
  std::erase(space.schedule, "interleaved");
  std::erase(space.schedule, "breadth-first");
  space.recompute = {{Recompute::none}, {Recompute::selective}, {Recompute::full}, {Recompute::sqrt}};
  space.micro_batch_size.clear();
  for (std::int64_t sequences = 1; sequences <= base.workload.global_batch_size; ++sequences)
    if (base.workload.global_batch_size % sequences == 0) space.micro_batch_size.push_back(sequences);
  space.zero_stage = {0, 1, 2, 3};
  space.shard_group = {0};
  if (base.hardware.devices_per_node > 1) space.shard_group.push_back(base.hardware.devices_per_node);
  if (m.has_experts()) {
    space.expert_parallel = divisors(devices, m.moe.num_experts);
    std::erase_if(space.expert_parallel, [&](int e) { return m.moe.num_experts % e != 0; });
    space.expert_tensor_parallel = {0, 1};
  }
  if (base.hardware.host_link.value > 0 && base.hardware.host_memory_bandwidth.value > 0)
    space.offload_optimizer = {false, true};
  return space;
}

std::int64_t size(const SearchSpace& space) {
  std::vector<std::size_t> counts;
  for_each_searched(space, [&](auto, const auto& values) { counts.push_back(values.size()); });
  return product(counts);
}

Scenario candidate(const SearchSpace& space, std::int64_t index) {
  require_candidate(space, index);
  std::vector<std::size_t> radix, digit;
  for_each_searched(space, [&](auto, const auto& values) { radix.push_back(values.size()); });
  digit.resize(radix.size());
  for (std::size_t f = radix.size(); f-- > 0;) {
    digit[f] = static_cast<std::size_t>(index % static_cast<std::int64_t>(radix[f]));
    index /= static_cast<std::int64_t>(radix[f]);
  }
  Scenario c = space.base;
  std::size_t field = 0;
  for_each_searched(space, [&](auto member, const auto& values) { set(c, member, values[digit[field++]]); });
  Strategy& s = c.strategy;
  const int devices = space.devices[digit[0]];
  const std::int64_t others =
      std::int64_t{s.tensor_parallel} * s.context_parallel * std::int64_t{s.pipeline_parallel};
  s.data_parallel = others > 0 && devices % others == 0 ? static_cast<int>(devices / others) : 0;
  return c;
}

std::vector<Problem> problems(const SearchSpace& space) {
  std::vector<Problem> found;
  if (space.base.workload.task != Task::train)
    found.push_back({"workload.task", "must be train: the planner searches strategies of training"});
  for_each_searched(space, [&](auto member, const auto& values) {
    if (values.empty())
      found.push_back(
          {"search." + std::string(name_of_searched(member)), "must have a value to try at least"});
  });
  return found;
}

}  // namespace sim
