#include "sim/scenario/model.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace sim {

std::optional<LayerSort> layer_sort_from_letter(char letter) {
  using enum LayerSort;
  constexpr std::array<std::pair<char, LayerSort>, 4> kLetters{
      {{'M', state_space}, {'*', attention}, {'-', feed_forward}, {'E', experts}}};
  const auto found = std::ranges::find(kLetters, letter, &std::pair<char, LayerSort>::first);
  return found == kLetters.end() ? std::nullopt : std::optional(found->second);
}

LayerSort Model::sort_of_layer(std::int64_t layer) const {
  const auto l = static_cast<std::size_t>(layer);
  if (l >= hybrid_override_pattern.size()) return LayerSort::whole;
  return layer_sort_from_letter(hybrid_override_pattern[l]).value_or(LayerSort::whole);
}

std::int64_t Model::layers_of(LayerSort sort) const {
  if (!is_hybrid()) return sort == LayerSort::whole ? num_hidden_layers : 0;
  const std::int64_t named = std::min<std::int64_t>(num_hidden_layers, std::ssize(hybrid_override_pattern));
  std::int64_t n = sort == LayerSort::whole ? num_hidden_layers - named : 0;  // beyond the pattern
  for (std::int64_t l = 0; l < named; ++l) n += sort_of_layer(l) == sort;
  return n;
}

std::int64_t Model::dense_layers() const {
  return is_hybrid() ? layers_of(LayerSort::feed_forward) : num_hidden_layers - expert_layers();
}

std::int64_t Model::count_layers(bool (Model::*is_of_kind)(std::int64_t layer) const) const {
  std::int64_t n = 0;
  for (std::int64_t l = 0; l < num_hidden_layers; ++l) n += (this->*is_of_kind)(l);
  return n;
}

namespace {

std::int64_t attention_parameters(const Model& m) {
  const std::int64_t h = m.hidden_size, heads = m.num_attention_heads;
  std::int64_t n = h * m.value_size();
  if (m.has_latent_attention()) {
    const LatentAttention& a = m.latent;
    n += a.q_lora_rank > 0 ? a.q_lora_rank * (h + 1 + m.query_size()) : h * m.query_size();
    n += h * (a.kv_lora_rank + a.qk_rope_head_dim) + a.kv_lora_rank;
    n += a.kv_lora_rank * heads * (a.qk_nope_head_dim + a.v_head_dim);
  } else {
    n += h * m.qkv_size();
  }
  if (m.attention_bias) n += m.qkv_size();
  if (m.attention_output_bias) n += h;
  if (m.qk_norm == QkNorm::per_head) n += 2 * m.head_dim;
  if (m.qk_norm == QkNorm::all_heads) n += m.query_size() + m.key_value_size();
  if (m.attention_sinks) n += heads;
  return n;
}

// A feed-forward network of a width.
std::int64_t mlp_parameters(const Model& m, std::int64_t width) {
  const std::int64_t up = m.up_size(width);
  return (up + width) * m.hidden_size + (m.mlp_bias ? up + m.hidden_size : 0);
}

// Parameters of a layer's experts, with `routed` of the routed ones.
std::int64_t moe_parameters(const Model& m, std::int64_t routed) {
  const MixtureOfExperts& e = m.moe;
  std::int64_t n = e.num_experts * (m.hidden_size + (e.router_bias ? 1 : 0));
  n += routed * mlp_parameters(m, e.moe_intermediate_size);
  if (e.shared_expert_intermediate_size > 0) n += mlp_parameters(m, e.shared_expert_intermediate_size);
  if (e.shared_expert_gate) n += m.hidden_size;
  return n;
}

// Projections in and out, convolution with bias; time step's bias, decay and skip of each head; the norm's
// gain.
std::int64_t state_space_parameters(const Model& m) {
  const StateSpace& s = m.state_space;
  if (s.mamba_num_heads == 0) return 0;
  return m.hidden_size * (s.projection_size() + s.inner_size()) + s.conv_size() * (s.conv_kernel + 1) +
         3 * s.mamba_num_heads + s.inner_size();
}

}  // namespace

ParameterCount count_parameters(const Model& m) {
  const std::int64_t h = m.hidden_size;
  const std::int64_t norm = h * (m.norm_has_gain() + m.norm_has_bias());

  ParameterCount n;
  n.embedding = m.vocab_size * h;
  if (m.position == Position::learned) n.embedding += m.max_position_embeddings * h;
  if (m.embedding_norm) n.embedding += norm;
  n.attention_per_layer = attention_parameters(m);
  n.state_space_per_layer = state_space_parameters(m);
  n.norms_per_layer = m.is_hybrid() ? norm : m.norms_of_layer() * norm;
  n.final_norm = norm;
  n.head = m.tie_word_embeddings ? 0 : m.vocab_size * h;

  const std::int64_t sparse = m.expert_layers();
  n.mlp_per_layer = mlp_parameters(m, m.intermediate_size);
  const std::int64_t active_moe = m.has_experts() ? moe_parameters(m, m.moe.num_experts_per_tok) : 0;
  n.moe_per_layer = m.has_experts() ? moe_parameters(m, m.moe.num_experts) : 0;
  const std::int64_t rest = n.embedding + m.num_hidden_layers * n.norms_per_layer +
                            m.attention_layers() * n.attention_per_layer +
                            m.layers_of(LayerSort::state_space) * n.state_space_per_layer +
                            m.dense_layers() * n.mlp_per_layer + n.final_norm + n.head;
  n.total = rest + sparse * n.moe_per_layer;
  n.active = rest + sparse * active_moe;
  // Each module: two norms, the projection of both to one, a layer of the last one's kind and a norm;
  // embedding and head are the model's (DeepSeek-V3, arXiv 2412.19437, section 2.2).
  if (m.num_nextn_predict_layers > 0) {
    const bool experts = m.is_expert_layer(m.num_hidden_layers - 1);
    n.multi_token_prediction =
        m.num_nextn_predict_layers * (3 * norm + 2 * h * h + n.attention_per_layer + n.norms_per_layer +
                                      (experts ? n.moe_per_layer : n.mlp_per_layer));
  }
  return n;
}

}  // namespace sim
