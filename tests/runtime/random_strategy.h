// Strategies of several ranks that are run against one rank, drawn at random with the models that they are
// for.
#pragma once
#include <cstdint>
#include <random>

#include "sim/plan/legality.h"
#include "sim/plan/schedule.h"
#include "tests/runtime/small_run.h"

namespace tests {

// With experts, each of which some tokens choose.
inline sim::Model small_experts() {
  sim::Model m = small_llama();
  m.name = "small-experts";
  m.num_key_value_heads = 4;
  m.head_dim = 8;
  m.moe.num_experts = 4;
  m.moe.num_experts_per_tok = 2;
  m.moe.moe_intermediate_size = 32;
  m.vocab_size = 301;
  return m;
}

inline sim::Model small_model(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<std::int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  const auto sort = random() % 6;
  if (sort == 0) {
    sim::Model m = small_hybrid();
    m.vocab_size = one_of({256, 301});
    return m;
  }
  if (sort <= 2) {
    sim::Model m = small_experts();
    m.num_hidden_layers = one_of({4, 5});
    m.moe.shared_expert_intermediate_size = one_of({0, 48});
    m.moe.shared_expert_gate = m.moe.shared_expert_intermediate_size > 0 && random() % 2 == 0;
    m.moe.first_k_dense_replace = one_of({0, 1});
    return m;
  }
  sim::Model m = random() % 2 == 0 ? small_gpt() : small_llama();
  m.num_hidden_layers = one_of({4, 5, 8});
  m.num_attention_heads = one_of({4, 8});
  m.num_key_value_heads = m.position == sim::Position::rope ? one_of({1, 2, 4}) : m.num_attention_heads;
  m.head_dim = 8;
  m.hidden_size = m.position == sim::Position::rope ? 24 : m.num_attention_heads * m.head_dim;
  m.intermediate_size = 64;
  m.vocab_size = one_of({256, 301});
  m.tie_word_embeddings = random() % 2 == 0;
  return m;
}

// A legal strategy of several ranks, drawn at random, over a model drawn at random.
inline sim::Scenario random_scenario(std::uint32_t seed) {
  std::mt19937 random(seed);
  for (;;) {
    const auto one_of = [&](std::initializer_list<int> values) {
      return values.begin()[random() % values.size()];
    };
    sim::Scenario s = training(small_model(random), 16, 1, 8);
    sim::Strategy& strategy = s.strategy;
    strategy.tensor_parallel = one_of({1, 1, 2, 4});
    strategy.pipeline_parallel = one_of({1, 1, 2, 4});
    strategy.data_parallel = one_of({1, 2, 4});
    strategy.context_parallel = one_of({1, 1, 2, 4});
    constexpr sim::ContextParallelComm kExchanges[] = {sim::ContextParallelComm::all_gather,
                                                       sim::ContextParallelComm::ring,
                                                       sim::ContextParallelComm::all_to_all};
    if (strategy.context_parallel > 1) strategy.context_parallel_comm = kExchanges[random() % 3];
    strategy.zero_stage = strategy.data_parallel > 1 ? one_of({0, 1, 2, 3}) : 0;
    strategy.sequence_parallel = strategy.tensor_parallel > 1 && random() % 2 == 0;
    const auto& schedules = sim::kScheduleNames;
    if (strategy.pipeline_parallel > 1) {
      strategy.schedule = schedules[random() % schedules.size()];
      strategy.virtual_pipeline = one_of({1, 2});
      strategy.first_stage_layers = one_of({0, 0, 1, 2});
      strategy.last_stage_layers = one_of({0, 0, 1, 2});
    }
    strategy.prefetch = strategy.zero_stage == 3 ? one_of({0, 1, 2}) : 1;
    if (strategy.data_parallel > 1) strategy.gradient_bucket = one_of({0, 20000, 1 << 20});
    strategy.recompute = one_of({0, 1}) == 0 ? sim::Recompute::none : sim::Recompute::full;
    s.implementation.head_chunks = one_of({1, 1, 2});
    s.workload.micro_batch_size = one_of({1, 2});
    if (s.model.has_experts()) {
      strategy.expert_parallel = one_of({1, 2, 2, 4});
      if (strategy.sequence_parallel) strategy.expert_tensor_parallel = one_of({0, 1});
    }
    if (strategy.zero_stage > 0) strategy.shard_group = one_of({0, 0, 2});
    if (strategy.recompute == sim::Recompute::full) strategy.recompute_interval = one_of({1, 1, 2});
    strategy.rank_order = one_of({0, 0, 1}) == 0 ? sim::kDefaultRankOrder : "tp-pp-cp-ep-dp";
    strategy.offload_optimizer = one_of({0, 0, 0, 1}) == 1;
    strategy.offload_activations = one_of({0, 0, 0, 1}) == 1;
    const int ranks = strategy.devices();
    s.hardware.devices_per_node = ranks;
    s.hardware.node_link = s.hardware.host_link = sim::gb_per_s(5);
    s.hardware.host_memory_bandwidth = sim::gb_per_s(20);
    const bool counts_heads_once = strategy.tensor_parallel <= s.model.num_key_value_heads;
    if (ranks >= 2 && ranks <= 8 && counts_heads_once && sim::validate(s).empty()) return s;
  }
}

}  // namespace tests
