// What a search may choose from: a training scenario, and for each searched field the values to try. A
// candidate is one value of each, so that a space has a size, and each of its candidates a number: sweeps are
// cut into ranges of numbers and resumed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/legality.h"
#include "sim/scenario/scenario.h"

namespace sim {

// How much is computed again: Strategy::recompute and, of `full`, recompute_interval.
struct RecomputeChoice {
  Recompute recompute = Recompute::none;
  int interval = 1;
  bool operator==(const RecomputeChoice&) const = default;
};

// Values in the order in which they are tried; a field that stays has one. data_parallel is what the others
// leave of the devices. Candidates may contradict themselves (a degree that does not divide): the search
// refuses and counts them by field.
struct SearchSpace {
  Scenario base;  // all that is not listed below

  std::vector<int> devices;
  std::vector<std::int64_t> global_batch_size;
  std::vector<std::string> rank_order;
  std::vector<int> tensor_parallel, context_parallel, expert_parallel, expert_tensor_parallel;
  std::vector<ContextParallelComm> context_parallel_comm;
  std::vector<bool> sequence_parallel;
  std::vector<RecomputeChoice> recompute;
  std::vector<bool> offload_activations;
  std::vector<std::int64_t> micro_batch_size;
  std::vector<int> pipeline_parallel;
  std::vector<std::string> schedule;
  std::vector<int> virtual_pipeline;
  std::vector<int> zero_stage, shard_group, prefetch;
  std::vector<std::int64_t> gradient_bucket;  // bytes
  std::vector<bool> offload_optimizer;

  bool operator==(const SearchSpace&) const = default;
};

// The space of one candidate: every field has the base's value. Its devices are the strategy's.
SearchSpace space_of(const Scenario& base);

// Every strategy that is legal for the base's model and batch on so many devices: all degrees that divide,
// all schedules and chunks, with and without sequence parallelism, every split of the batch, ZeRO 0 to 3 over
// all and over a node, every recompute of whole layers or of attention, the optimizer on the device or, where
// the hardware has a link to it, on the host. What is a matter of taste rather than of strategy keeps the
// base's value: rank order, how context-parallel ranks exchange, prefetch, buckets, activations on the host.
SearchSpace every_strategy(const Scenario& base, const std::vector<int>& devices);

// Candidates in a space; saturates at the largest number. 0: a field has no value.
std::int64_t size(const SearchSpace& space);

// The candidate of a number in [0, size); others throw std::out_of_range. Fields listed last in SearchSpace
// change fastest. Where the degrees do not divide the devices, data_parallel is 0, which validate() refuses.
Scenario candidate(const SearchSpace& space, std::int64_t index);

// One sentence for each thing that a search cannot begin with: a field without values, a base that generates.
std::vector<Problem> problems(const SearchSpace& space);

}  // namespace sim
