// Scenarios for tests of the plan and of what is computed from it: shapes written out, not read from presets.
#pragma once
#include <algorithm>
#include <numeric>
#include <random>

#include "sim/plan/ranks.h"
#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/scenario.h"

namespace test {

inline sim::Model gpt(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t vocab,
                      std::int64_t positions) {
  return {.name = "gpt",
          .norm = sim::Norm::layernorm,
          .activation = sim::Activation::gelu,
          .position = sim::Position::learned,
          .hidden_size = hidden,
          .intermediate_size = 4 * hidden,
          .num_hidden_layers = layers,
          .num_attention_heads = heads,
          .num_key_value_heads = heads,
          .head_dim = hidden / heads,
          .vocab_size = vocab,
          .max_position_embeddings = positions,
          .tie_word_embeddings = true,
          .attention_bias = true,
          .attention_output_bias = true,
          .mlp_bias = true,
          .rope_scaling = {},
          .source = {}};
}

inline sim::Model llama(std::int64_t hidden, std::int64_t intermediate, std::int64_t layers,
                        std::int64_t heads, std::int64_t kv_heads, std::int64_t vocab) {
  return {.name = "llama",
          .norm = sim::Norm::rmsnorm,
          .activation = sim::Activation::swiglu,
          .position = sim::Position::rope,
          .hidden_size = hidden,
          .intermediate_size = intermediate,
          .num_hidden_layers = layers,
          .num_attention_heads = heads,
          .num_key_value_heads = kv_heads,
          .head_dim = hidden / heads,
          .vocab_size = vocab,
          .max_position_embeddings = 131072,
          .rope_scaling = {},
          .source = {}};
}

inline sim::Model gpt2_124m() {
  return gpt(768, 12, 12, 50257, 1024);
}
inline sim::Model llama_8b() {
  return llama(4096, 14336, 32, 32, 8, 128256);
}
inline sim::Model llama_405b() {
  return llama(16384, 53248, 126, 128, 8, 128256);
}

// Our own kernels, and Megatron-LM of 2022: dropout with its masks, attention that writes its probabilities.
inline sim::Implementation ridgepoint() {
  sim::Implementation i;
  i.name = "ridgepoint";
  i.runs_here = true;
  return i;
}
inline sim::Implementation megatron_2022() {
  sim::Implementation i;
  i.name = "megatron_2022";
  i.attention = sim::AttentionKind::standard;
  i.dropout = true;
  i.fused_residual = false;
  return i;
}

inline sim::Hardware h100() {
  sim::Hardware h;
  h.name = "h100-sxm";
  h.display_name = "NVIDIA H100 SXM5 80 GB";
  h.peak = {{sim::DType::fp32, sim::tflops(67)},
            {sim::DType::tf32, sim::tflops(494.5)},
            {sim::DType::bf16, sim::tflops(989)},
            {sim::DType::fp16, sim::tflops(989)},
            {sim::DType::fp8, sim::tflops(1979)}};
  h.memory = sim::gib(80);
  h.memory_bandwidth = sim::gb_per_s(3350);
  h.last_level_cache = sim::gib(50.0 / 1024);
  h.launch = sim::us(4);
  h.multiprocessors = 132;
  h.devices_per_node = 8;
  h.node_link = sim::gb_per_s(450);
  h.network_link = sim::gb_per_s(50);
  h.node_latency = sim::us(5);
  h.network_latency = sim::us(10);
  h.host_link = sim::gb_per_s(64);
  h.host_memory_bandwidth = sim::gb_per_s(76.8);
  h.source = "NVIDIA H100 datasheet";
  return h;
}

inline sim::Scenario training(const sim::Model& model, std::int64_t seq_len, std::int64_t micro_batch = 1,
                              std::int64_t global_batch = 1, sim::DType dtype = sim::DType::bf16) {
  sim::Scenario s;
  s.model = model;
  s.hardware = h100();
  s.implementation = ridgepoint();
  s.workload.task = sim::Task::train;
  s.workload.dtype = dtype;
  s.workload.seq_len = seq_len;
  s.workload.micro_batch_size = micro_batch;
  s.workload.global_batch_size = global_batch;
  return s;
}

inline sim::Scenario generation(const sim::Model& model, std::int64_t prompt, std::int64_t new_tokens,
                                bool kv_cache = true, std::int64_t batch = 1,
                                sim::DType dtype = sim::DType::bf16) {
  sim::Scenario s;
  s.model = model;
  s.hardware = h100();
  s.implementation = ridgepoint();
  s.workload.task = sim::Task::generate;
  s.workload.dtype = dtype;
  s.workload.batch_size = batch;
  s.workload.prompt_length = prompt;
  s.workload.max_new_tokens = new_tokens;
  s.workload.kv_cache = kv_cache;
  return s;
}

// Any optimizer that the strategy can have, and what waits in the host's memory.
template <class Pick>
void draw_optimizer(sim::Scenario& s, const Pick& pick) {
  s.workload.optimizer = static_cast<sim::Optimizer>(pick(0, 4));
  const bool whole_matrices =
      s.workload.optimizer == sim::Optimizer::adafactor || s.workload.optimizer == sim::Optimizer::muon;
  if (whole_matrices && s.strategy.zero_stage > 0) s.workload.optimizer = sim::Optimizer::adamw;
  s.strategy.offload_optimizer = s.workload.optimizer == sim::Optimizer::adamw && pick(0, 2) == 0;
  s.strategy.offload_activations = pick(0, 3) == 0;
}

// Head and loss in some of the numbers of chunks that divide a rank's rows; generation's cache in blocks, and
// in fp8.
template <class Pick>
void draw_chunks_and_blocks(sim::Scenario& s, const Pick& pick) {
  if (s.workload.task == sim::Task::train) {
    const std::int64_t rows = s.workload.micro_batch_size * s.workload.seq_len / s.strategy.context_parallel;
    s.implementation.head_chunks = static_cast<int>(std::gcd(rows, std::max<std::int64_t>(1, pick(-4, 6))));
  } else if (s.workload.kv_cache) {
    s.workload.kv_block = std::max<std::int64_t>(0, pick(-3, 9));
    if (pick(0, 2) == 0) s.workload.kv_dtype = sim::DType::fp8;
  }
}

// Anything that can be recomputed. pick(low, high) draws a whole number.
template <class Pick>
void draw_recompute(sim::Strategy& strategy, const Pick& pick) {
  strategy.recompute = static_cast<sim::Recompute>(pick(0, 4));
  if (strategy.recompute == sim::Recompute::full) strategy.recompute_interval = static_cast<int>(pick(1, 4));
  if (strategy.recompute == sim::Recompute::operations) {
    const auto& words = sim::kRecomputeWords;
    for (const std::string_view word : words)
      if (pick(0, 1) == 1) strategy.recompute_operations.emplace_back(word);
    if (strategy.recompute_operations.empty()) strategy.recompute_operations.emplace_back(words[0]);
  }
}

// What models differ in besides their sizes: `pick` draws a whole number between two, both included.
template <class Pick>
void vary(sim::Model& m, Pick pick) {
  const auto coin = [&] { return pick(0, 1) == 1; };
  m.norm = coin() ? sim::Norm::layernorm : sim::Norm::rmsnorm;
  constexpr sim::Activation kActivations[] = {sim::Activation::gelu, sim::Activation::relu,
                                              sim::Activation::squared_relu, sim::Activation::swiglu,
                                              sim::Activation::geglu};
  m.activation = kActivations[pick(0, 4)];
  m.position = static_cast<sim::Position>(pick(0, 3));
  m.qk_norm = static_cast<sim::QkNorm>(std::max<std::int64_t>(0, pick(-3, 2)));
  m.attention_sinks = pick(0, 4) == 0;
  m.embedding_norm = pick(0, 4) == 0;
  m.parallel_residual = pick(0, 4) == 0;
  m.shared_norm = m.parallel_residual && coin();
  // By sizes that were drawn, not by further draws: other seeds' scenarios stay as they are.
  const std::int64_t own = m.vocab_size + m.hidden_size / 8;
  if (!m.parallel_residual && own % 3 == 0) m.norm_placement = static_cast<sim::NormPlacement>(1 + own % 2);
  if (own % 5 == 0) m.embedding_multiplier = 2.5;
  if (own % 4 == 1 && m.activation == sim::Activation::gelu) m.activation = sim::Activation::gelu_exact;
  if (own % 4 == 1 && m.activation == sim::Activation::swiglu) m.activation = sim::Activation::clamped_swiglu;
  if (own % 4 == 2 && m.qk_norm == sim::QkNorm::per_head) m.qk_norm = sim::QkNorm::without_gain;
  if (pick(0, 2) == 0) {
    m.sliding_window = pick(1, 40);
    m.sliding_window_pattern = pick(0, 3);
    if (m.sliding_window > 25) {  // stretches instead
      std::swap(m.attention_chunk_size, m.sliding_window);
      std::swap(m.no_rope_layer_interval, m.sliding_window_pattern);
      if (m.position != sim::Position::rope) m.no_rope_layer_interval = 0;
    }
  }
  m.tie_word_embeddings = coin();
  m.attention_bias = coin();
  m.attention_output_bias = coin();
  m.mlp_bias = coin();
  m.max_position_embeddings = 256;
}

// Experts in place of some or all feed-forward networks, as many as a multiple of `multiple`.
template <class Pick>
void vary_experts(sim::Model& m, sim::Workload& w, std::int64_t multiple, Pick pick) {
  if (m.activation < sim::Activation::swiglu) m.activation = sim::Activation::swiglu;
  m.moe.num_experts = multiple * pick(1, 3);
  m.moe.num_experts_per_tok = pick(1, std::min<std::int64_t>(m.moe.num_experts, 4));
  m.moe.moe_intermediate_size = 8 * pick(1, 8);
  m.moe.shared_expert_intermediate_size = 8 * std::max<std::int64_t>(0, pick(-4, 4));
  m.moe.shared_expert_gate = m.moe.shared_expert_intermediate_size > 0 && pick(0, 1) == 1;
  m.moe.router_bias = pick(0, 1) == 1;
  m.moe.weights_on = static_cast<sim::ExpertWeights>((m.vocab_size + m.hidden_size / 8) % 3);
  m.moe.first_k_dense_replace = std::max<std::int64_t>(0, pick(-1, 2));
  m.moe.decoder_sparse_step = std::max<std::int64_t>(1, pick(-1, 2));
  w.expert_imbalance = 1 + 0.25 * static_cast<double>(std::max<std::int64_t>(0, pick(-2, 2)));
  w.expert_imbalance = std::min(w.expert_imbalance, static_cast<double>(m.moe.num_experts));
  w.expert_capacity_factor = std::min(0.5 * static_cast<double>(std::max<std::int64_t>(0, pick(-4, 4))),
                                      static_cast<double>(m.moe.num_experts));
}

// Any small decoder with any knobs; the same for the same seed.
inline sim::Scenario random_scenario(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto coin = [&] { return pick(0, 1) == 1; };
  const std::int64_t kv_heads = pick(1, 4), heads = kv_heads * pick(1, 3), head_dim = 4 * pick(1, 8);
  sim::Model m = llama(8 * pick(2, 16), 8 * pick(2, 32), pick(1, 5), heads, kv_heads, pick(11, 300));
  m.head_dim = head_dim;
  vary(m, pick);
  const sim::DType dtype = coin() ? sim::DType::fp32 : sim::DType::bf16;
  sim::Scenario s;
  sim::Workload experts;
  if (pick(0, 2) == 0) vary_experts(m, experts, 1, pick);
  if (coin()) {
    const std::int64_t micro = pick(1, 3);
    s = training(m, pick(1, 48), micro, micro * pick(1, 4), dtype);
    draw_recompute(s.strategy, pick);
    draw_optimizer(s, pick);
  } else {
    s = generation(m, pick(1, 20), pick(1, 12), coin(), pick(1, 3), dtype);
  }
  s.workload.expert_imbalance = experts.expert_imbalance;
  s.workload.expert_capacity_factor = experts.expert_capacity_factor;
  s.implementation.attention = coin() ? sim::AttentionKind::flash : sim::AttentionKind::standard;
  s.implementation.dropout = coin();
  s.implementation.fused_residual = coin();
  s.implementation.master_weights = coin();
  draw_chunks_and_blocks(s, pick);
  return s;
}

// Any training step of a small model divided over devices in any way; the same for the same seed.
inline sim::Scenario random_parallel_scenario(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto coin = [&] { return pick(0, 1) == 1; };
  sim::Strategy strategy;
  strategy.tensor_parallel = 1 << pick(0, 2);
  strategy.data_parallel = static_cast<int>(pick(1, 5));
  strategy.pipeline_parallel = static_cast<int>(pick(1, 4));
  strategy.context_parallel = std::max(1, static_cast<int>(pick(-2, 3)));
  if (strategy.pipeline_parallel > 1) {
    const auto& schedules = sim::kScheduleNames;
    strategy.schedule = schedules[static_cast<std::size_t>(pick(0, static_cast<int>(schedules.size()) - 1))];
  }
  if (strategy.schedule == "dualpipe") strategy.pipeline_parallel += strategy.pipeline_parallel % 2;
  if (sim::traits_of_schedule(strategy.schedule).chunks == sim::Chunks::several)
    strategy.virtual_pipeline = static_cast<int>(pick(2, 3));
  if (sim::placement_of(strategy.schedule) == sim::Placement::v) strategy.virtual_pipeline = 2;
  strategy.sequence_parallel = strategy.tensor_parallel > 1 && coin();
  const int data_ranks = strategy.data_parallel * strategy.context_parallel;
  if (data_ranks > 1) {
    strategy.zero_stage = static_cast<int>(pick(0, 3));
    strategy.gradient_bucket = coin() ? pick(1, 200'000) : 0;
  }
  if (strategy.zero_stage > 0 && data_ranks % 2 == 0 && data_ranks > 2 && coin()) strategy.shard_group = 2;
  if (strategy.zero_stage == 3) strategy.prefetch = static_cast<int>(pick(0, 3));
  const char* const orders[] = {"tp-cp-ep-dp-pp", "tp-cp-pp-dp-ep", "dp-tp-pp-cp-ep", "pp-dp-ep-cp-tp"};
  strategy.rank_order = orders[pick(0, 3)];
  if (strategy.shard_group > 0 && !sim::is_divided_by(sim::data_group(strategy), strategy.shard_group))
    strategy.shard_group = 0;
  draw_recompute(strategy, pick);

  const std::int64_t t = strategy.tensor_parallel, kv_heads = 1 << pick(0, 3), heads = 8 * pick(1, 2);
  const std::int64_t pieces = strategy.pipeline_parallel * strategy.virtual_pipeline;
  sim::Model m = llama(8 * pick(2, 16), 8 * pick(2, 32), pieces + pick(0, 5), heads, kv_heads, pick(11, 300));
  m.head_dim = 4 * pick(1, 8);
  vary(m, pick);
  if (strategy.schedule == "dualpipe" && strategy.zero_stage >= 2) m.tie_word_embeddings = false;
  sim::Workload experts;
  if (coin()) {
    strategy.expert_tensor_parallel = strategy.sequence_parallel && coin() ? 1 : 0;
    const std::int64_t ranks = strategy.data_parallel * strategy.context_parallel *
                               (strategy.tensor_parallel / strategy.devices_of_expert());
    const std::int64_t degree = pick(1, ranks);
    if (strategy.expert_tensor_parallel > 0) strategy.rank_order = sim::kDefaultRankOrder;
    if (ranks % degree == 0 && sim::is_divided_by(sim::expert_ranks(strategy), static_cast<int>(degree)))
      strategy.expert_parallel = static_cast<int>(degree);
    if (strategy.expert_parallel > 1 && strategy.tensor_parallel > 1) strategy.sequence_parallel = true;
    vary_experts(m, experts, strategy.expert_parallel, pick);
  }
  const std::int64_t micro = pick(1, 3);
  std::int64_t rounds =
      strategy.schedule == "interleaved" ? strategy.pipeline_parallel * pick(1, 3) : pick(1, 9);
  if (strategy.schedule.starts_with("dualpipe")) rounds = 2 * (strategy.pipeline_parallel + pick(0, 3));
  sim::Scenario s =
      training(m, 2 * t * strategy.context_parallel * pick(1, 4), micro,
               micro * rounds * strategy.data_parallel, coin() ? sim::DType::fp32 : sim::DType::bf16);
  s.strategy = strategy;
  s.workload.expert_imbalance = experts.expert_imbalance;
  s.workload.expert_capacity_factor = experts.expert_capacity_factor;
  draw_optimizer(s, pick);
  if (strategy.context_parallel > 1) {
    s.strategy.context_parallel_comm = static_cast<sim::ContextParallelComm>(pick(0, 2));
    const bool divides = m.num_key_value_heads % (t * strategy.context_parallel) == 0;
    const bool cannot = s.strategy.context_parallel_comm == sim::ContextParallelComm::ring
                            ? m.reach_of_windows() > 0
                            : !divides;
    if (cannot) s.strategy.context_parallel_comm = sim::ContextParallelComm::all_gather;
  }
  s.implementation.attention =
      strategy.context_parallel > 1 || coin() ? sim::AttentionKind::flash : sim::AttentionKind::standard;
  s.implementation.dropout = coin();
  s.implementation.fused_residual = coin();
  s.implementation.master_weights = coin();
  draw_chunks_and_blocks(s, pick);
  return s;
}

}  // namespace test
