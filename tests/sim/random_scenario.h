// Scenarios drawn at random, without contradictions and of every shape that plans are made for.
#pragma once
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "sim/scenario/scenario.h"

inline std::int64_t draw(std::mt19937_64& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

// Spread evenly over orders of magnitude, with all the bits of a double.
inline double draw_magnitude(std::mt19937_64& random, double least_exponent, double most_exponent) {
  return std::pow(10.0, std::uniform_real_distribution<double>(least_exponent, most_exponent)(random));
}

// A letter for each layer, of all that there are experts for or not.
inline void make_hybrid(std::mt19937_64& random, sim::Model& m) {
  const std::string letters = m.has_experts() ? "M*-E" : "M*-";
  m.hybrid_override_pattern.clear();
  for (std::int64_t l = 0; l < m.num_hidden_layers; ++l)
    m.hybrid_override_pattern += letters[static_cast<std::size_t>(draw(random, 0, std::ssize(letters) - 1))];
  if (m.has_experts()) m.hybrid_override_pattern[0] = 'E';
  m.state_space.n_groups = draw(random, 1, 4);
  m.state_space.mamba_num_heads = m.state_space.n_groups * draw(random, 1, 4);
  m.state_space.mamba_head_dim = draw(random, 1, 32);
  m.state_space.ssm_state_size = draw(random, 1, 64);
  m.state_space.conv_kernel = draw(random, 1, 8);
  m.state_space.chunk_size = draw(random, 1, 64);
  m.parallel_residual = m.shared_norm = false;
  m.norm_placement = sim::NormPlacement::before;
  m.sliding_window = m.sliding_window_pattern = m.attention_chunk_size = m.no_rope_layer_interval = 0;
  m.moe.first_k_dense_replace = 0;
  m.moe.decoder_sparse_step = 1;
}

inline sim::Model random_model(std::mt19937_64& random) {
  sim::Model m;
  m.name = "random-" + std::to_string(draw(random, 0, 999));
  m.norm = draw(random, 0, 1) ? sim::Norm::layernorm : sim::Norm::rmsnorm;
  m.activation = static_cast<sim::Activation>(draw(random, 0, 6));
  m.position = static_cast<sim::Position>(draw(random, 0, 3));
  m.qk_norm = static_cast<sim::QkNorm>(draw(random, 0, 3));
  m.attention_sinks = draw(random, 0, 1);
  m.embedding_norm = draw(random, 0, 1);
  m.parallel_residual = draw(random, 0, 1);
  m.shared_norm = m.parallel_residual && draw(random, 0, 1);
  if (!m.parallel_residual) m.norm_placement = static_cast<sim::NormPlacement>(draw(random, 0, 2));
  m.norm_gains_from_one = m.norm == sim::Norm::rmsnorm && draw(random, 0, 1);
  if (draw(random, 0, 1)) m.embedding_multiplier = draw_magnitude(random, -1, 2);
  if (draw(random, 0, 1)) m.rope_local_base_freq = draw_magnitude(random, 3, 5);
  m.hidden_size = draw(random, 1, 64) * 2;
  m.intermediate_size = draw(random, 1, 300);
  m.num_hidden_layers = draw(random, 1, 6);
  m.num_key_value_heads = draw(random, 1, 4);
  m.num_attention_heads = m.num_key_value_heads * draw(random, 1, 4);
  m.head_dim = draw(random, 1, 16) * 2;
  m.vocab_size = draw(random, 1, 1000);
  m.max_position_embeddings = draw(random, 64, 512);
  m.tie_word_embeddings = draw(random, 0, 1);
  m.attention_bias = draw(random, 0, 1);
  m.attention_output_bias = draw(random, 0, 1);
  m.mlp_bias = draw(random, 0, 1);
  m.sliding_window = draw(random, 0, 100);
  if (m.sliding_window > 0) m.sliding_window_pattern = draw(random, 0, 4);
  if (m.sliding_window == 0) m.attention_chunk_size = draw(random, 0, 100);
  if (m.position == sim::Position::rope) m.no_rope_layer_interval = draw(random, 0, 4);
  if (sim::is_gated(m.activation) && draw(random, 0, 1)) {
    m.moe.n_group = draw(random, 1, 3);
    m.moe.topk_group = draw(random, 1, m.moe.n_group);
    m.moe.num_experts = m.moe.n_group * draw(random, 1, 8);
    m.moe.num_experts_per_tok = draw(random, 1, m.moe.num_experts);
    m.moe.moe_intermediate_size = draw(random, 1, 100);
    m.moe.shared_expert_intermediate_size = draw(random, 0, 100);
    m.moe.router_bias = draw(random, 0, 1);
    m.moe.weights_on = static_cast<sim::ExpertWeights>(draw(random, 0, 2));
    m.moe.first_k_dense_replace = draw(random, 0, 3);
    m.moe.decoder_sparse_step = draw(random, 1, 3);
  }
  m.norm_eps = draw_magnitude(random, -8, -4);
  m.rope_theta = draw_magnitude(random, 3, 7);
  m.rope_scaling.kind = static_cast<sim::RopeScaling::Kind>(draw(random, 0, 3));
  if (m.rope_scaling.kind != sim::RopeScaling::Kind::none)
    m.rope_scaling.factor = draw_magnitude(random, 0, 2);
  if (m.rope_scaling.kind == sim::RopeScaling::Kind::yarn) {
    m.rope_scaling.original_max_position_embeddings = draw(random, 16, 8192);
    m.rope_scaling.beta_fast = draw_magnitude(random, 1, 2);
    m.rope_scaling.beta_slow = draw_magnitude(random, -1, 0.9);
    m.rope_scaling.truncate = draw(random, 0, 1);
    m.rope_scaling.attention_factor = draw(random, 0, 1) ? 0 : draw_magnitude(random, -1, 1);
  }
  if (m.rope_scaling.kind == sim::RopeScaling::Kind::llama3) {
    m.rope_scaling.low_freq_factor = draw_magnitude(random, -1, 0);
    m.rope_scaling.high_freq_factor = draw_magnitude(random, 0.1, 1);
    m.rope_scaling.original_max_position_embeddings = draw(random, 16, 8192);
  }
  m.source = "drawn \"at random\"";
  if (draw(random, 0, 3) == 0) make_hybrid(random, m);
  return m;
}

inline sim::Hardware random_hardware(std::mt19937_64& random) {
  sim::Hardware h;
  h.name = "random";
  h.display_name = "Random chip";
  for (const sim::DType t : {sim::DType::fp32, sim::DType::bf16, sim::DType::fp8})
    h.peak[t] = {draw_magnitude(random, 9, 16)};
  h.peak[sim::DType::tf32] = h.peak[sim::DType::fp32];
  h.peak[sim::DType::fp16] = h.peak[sim::DType::bf16];
  h.memory = {draw(random, 1, std::int64_t{1} << 40)};
  h.memory_bandwidth = {draw_magnitude(random, 9, 13)};
  h.last_level_cache = {draw(random, 0, 1 << 30)};
  h.launch = {draw_magnitude(random, -7, -4)};
  h.multiprocessors = static_cast<int>(draw(random, 1, 200));
  h.power_w = draw_magnitude(random, 0, 3);
  h.devices_per_node = static_cast<int>(draw(random, 1, 16));
  h.node_link = {draw_magnitude(random, 9, 12)};
  h.network_link = {draw_magnitude(random, 9, 11)};
  h.node_latency = {draw_magnitude(random, -7, -5)};
  h.network_latency = {draw_magnitude(random, -6, -4)};
  h.source = "drawn at random";
  return h;
}

inline sim::Workload random_workload(std::mt19937_64& random) {
  sim::Workload w;
  w.task = draw(random, 0, 1) ? sim::Task::train : sim::Task::generate;
  w.dtype = draw(random, 0, 1) ? sim::DType::fp32 : sim::DType::bf16;
  w.seq_len = draw(random, 1, 64);
  w.micro_batch_size = draw(random, 1, 4);
  w.global_batch_size = w.micro_batch_size * draw(random, 1, 4);
  w.batch_size = draw(random, 1, 4);
  w.prompt_length = draw(random, 1, 32);
  w.max_new_tokens = draw(random, 1, 32);
  w.kv_cache = draw(random, 0, 1);
  return w;
}

inline sim::Scenario random_scenario(std::mt19937_64& random) {
  sim::Scenario s;
  s.model = random_model(random);
  s.hardware = random_hardware(random);
  s.workload = random_workload(random);
  s.strategy.recompute = static_cast<sim::Recompute>(draw(random, 0, 2));
  s.implementation.name = "random";
  s.implementation.attention = draw(random, 0, 1) ? sim::AttentionKind::flash : sim::AttentionKind::standard;
  s.implementation.dropout = draw(random, 0, 1);
  s.implementation.fused_residual = draw(random, 0, 1);
  s.implementation.gradient_dtype = draw(random, 0, 1) ? sim::DType::bf16 : sim::DType::fp32;
  s.implementation.master_weights = draw(random, 0, 1);
  s.implementation.source = "drawn at random";
  if (s.workload.task == sim::Task::train) {
    s.implementation.head_chunks =
        static_cast<int>(std::gcd(draw(random, 1, 8), s.workload.micro_batch_size * s.workload.seq_len));
  } else if (s.workload.kv_cache) {
    s.workload.kv_block = draw(random, 0, 20);
  }
  return s;
}
