// Models of presets, so small that they run in milliseconds and still have every part.
#pragma once
#include <algorithm>
#include <string>

#include "sim/scenario/model.h"

namespace tests {

// At most 4 layers, and no wider than 128: windows, segments, groups and patterns as far as they fit.
inline sim::Model shrunk(sim::Model m) {
  const auto at_most = [](std::int64_t& n, std::int64_t most) { n = std::min(n, most); };
  m.name = "shrunk";
  m.source.clear();
  const bool one_for_all = m.num_key_value_heads == 1,
             grouped = m.num_key_value_heads < m.num_attention_heads;
  m.num_attention_heads = 4;
  m.num_key_value_heads = one_for_all ? 1 : grouped ? 2 : 4;
  m.hidden_size = 64;
  m.head_dim = 16;
  m.intermediate_size = 96;
  m.vocab_size = 256;
  at_most(m.max_position_embeddings, 64);
  if (m.is_hybrid()) {
    std::string kinds;
    for (const char letter : m.hybrid_override_pattern)
      if (kinds.find(letter) == std::string::npos) kinds += letter;
    m.hybrid_override_pattern = kinds;
    m.num_hidden_layers = static_cast<std::int64_t>(kinds.size());
    m.state_space.mamba_num_heads = 4;
    m.state_space.mamba_head_dim = 16;
    at_most(m.state_space.ssm_state_size, 16);
    at_most(m.state_space.n_groups, 2);
    at_most(m.state_space.chunk_size, 8);
  } else {
    at_most(m.num_hidden_layers, 4);
  }
  at_most(m.sliding_window, 8);
  at_most(m.sliding_window_pattern, 4);
  at_most(m.attention_chunk_size, 8);
  at_most(m.no_rope_layer_interval, 4);
  if (m.has_experts()) {
    sim::MixtureOfExperts& e = m.moe;
    at_most(e.num_experts, 8);
    at_most(e.n_group, 4);
    at_most(e.topk_group, std::max<std::int64_t>(1, e.n_group / 2));
    at_most(e.num_experts_per_tok, e.n_group > 1 ? 4 : 3);
    e.moe_intermediate_size = 32;
    at_most(e.shared_expert_intermediate_size, 32);
    at_most(e.first_k_dense_replace, 2);
    e.weights_dtype.reset();  // published weights in fewer bits train in the type that runs compute in
    e.weights_group = 0;
  }
  if (m.has_latent_attention()) {
    at_most(m.latent.q_lora_rank, 24);
    m.latent.kv_lora_rank = 16;
    m.latent.qk_nope_head_dim = 16;
    m.latent.qk_rope_head_dim = 8;
    m.latent.v_head_dim = 12;
    m.head_dim = 24;
    m.num_key_value_heads = m.num_attention_heads;
  }
  return m;
}

}  // namespace tests
