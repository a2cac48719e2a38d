// The shape of a decoder-only transformer. Field names are those of Hugging Face's config.json.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/dtype.h"
#include "sim/enum_names.h"
#include "sim/scenario/field.h"
#include "sim/units.h"

namespace sim {

enum class Norm { layernorm, rmsnorm };
// What a LayerNorm learns. An RMSNorm always has a gain.
enum class NormParameters {
  gain_and_bias,
  gain,  // PaLM, DBRX
  none,  // OLMo
};
enum class Activation {
  gelu,  // its tanh form (GPT-2)
  relu,
  squared_relu,    // Nemotron-4
  gelu_exact,      // by the error function (Falcon, MPT, GPT-NeoX)
  swiglu,          // gated from here on: silu(gate) * up
  geglu,           // gelu(gate) * up (Gemma)
  clamped_swiglu,  // gate * sigmoid(1.702 gate) * (up + 1), both clamped (gpt-oss)
};
// Where a layer's norms are: on the inputs of attention and feed-forward, on their outputs, or on both.
enum class NormPlacement {
  before,
  after,   // OLMo 2
  around,  // Gemma 2
};
enum class Position {
  learned,
  rope,
  alibi,  // a bias on attention's scores by distance: no parameters, and only attention uses it
  none,
};
// RMSNorm of queries and keys, before the rotary embedding.
enum class QkNorm {
  none,
  per_head,      // one gain of head_dim elements for all query heads, one for keys (Qwen3)
  all_heads,     // over all heads at once (OLMo 2)
  without_gain,  // each head by itself, nothing learned, in layers with rotary embeddings (Llama 4)
};
// How a router turns its logits into scores.
enum class ScoringFunc {
  softmax,
  sigmoid,  // DeepSeek-V3
};
// What the weights of a token's experts multiply. Weights on the activation and on the output give the same
// result but for the bias of the last product.
enum class ExpertWeights {
  activation,
  input,   // Llama 4
  output,  // gpt-oss
};

constexpr bool is_gated(Activation a) {
  return a >= Activation::swiglu;
}

// Stretching of RoPE's base frequencies; the numbers are config.json's rope_scaling / rope_parameters.
struct RopeScaling {
  enum class Kind { none, linear, llama3, yarn } kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 8192;
  // yarn (Peng et al. 2023, arXiv 2309.00071) blends frequencies that turn between beta_slow and beta_fast
  // times in the original length; `truncate`: the ends are whole dimensions. Cosines and sines are multiplied
  // by attention_factor; 0: by 0.1 ln(factor) + 1.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  double attention_factor = 0;
  bool operator==(const RopeScaling&) const = default;
};
template <>
inline constexpr std::array<std::string_view, 4> kOtherWords<RopeScaling::Kind>{"default", "linear", "llama3",
                                                                                "yarn"};

// Feed-forward networks; a router chooses some of them for each token. num_experts 0: there are none.
struct MixtureOfExperts {
  std::int64_t num_experts = 0;            // in a layer, without shared experts
  std::int64_t num_experts_per_tok = 0;    // chosen for a token
  std::int64_t moe_intermediate_size = 0;  // width of one expert
  // Total width of the shared experts, which every token passes; 0: none. Their output may have a gate.
  std::int64_t shared_expert_intermediate_size = 0;
  bool shared_expert_gate = false;  // a sigmoid of a product with the token (Qwen1.5-MoE)
  // The type of the experts' published weights where it has fewer than 16 bits, with 16-bit activations
  // (gpt-oss: MXFP4). A scale of 32 bits serves weights_group weights.
  std::optional<DType> weights_dtype{};
  std::int64_t weights_group = 0;
  bool router_bias = false;  // one number an expert, of the router or for balance (gpt-oss, DeepSeek-V3)
  // Layers before first_k_dense_replace are dense; so are later ones but each decoder_sparse_step-th.
  std::int64_t first_k_dense_replace = 0;
  std::int64_t decoder_sparse_step = 1;
  // Experts form n_group groups. A token's experts are in at most topk_group of them (DeepSeek-V3).
  std::int64_t n_group = 1, topk_group = 1;
  // Weights of the chosen experts: their scores, divided by their sum if norm_topk_prob, times the factor.
  ScoringFunc scoring_func = ScoringFunc::softmax;
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1;
  ExpertWeights weights_on = ExpertWeights::activation;
  bool operator==(const MixtureOfExperts&) const = default;
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): queries, and keys with values, pass through
// latent vectors; the rotated elements are kept beside them. kv_lora_rank 0: there is none.
struct LatentAttention {
  std::int64_t q_lora_rank = 0;  // 0: queries come from the hidden state
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0, qk_rope_head_dim = 0;  // add up to Model::head_dim
  std::int64_t v_head_dim = 0;
  bool operator==(const LatentAttention&) const = default;
};

// Mixers with a state in place of a cache: Mamba-2 (arXiv 2405.21060), in layers that
// Model::hybrid_override_pattern names. mamba_num_heads 0: there are none.
struct StateSpace {
  std::int64_t mamba_num_heads = 0, mamba_head_dim = 0;
  std::int64_t ssm_state_size = 0;  // numbers that a head keeps for each of its mamba_head_dim channels
  std::int64_t n_groups = 1;        // groups of heads; a group's heads share the vectors for their states
  std::int64_t conv_kernel = 4;     // tokens that the convolution before the scan sees
  std::int64_t chunk_size = 128;    // tokens that the scan takes as one product
  bool operator==(const StateSpace&) const = default;

  std::int64_t inner_size() const { return mamba_num_heads * mamba_head_dim; }
  // Channels of the convolution: the inputs of the states, and the vectors that write and read the states.
  std::int64_t conv_size() const { return inner_size() + 2 * n_groups * ssm_state_size; }
  // Rows of the projection into the mixer: the gate, the convolution's channels, a time step for each head.
  std::int64_t projection_size() const { return inner_size() + conv_size() + mamba_num_heads; }
  // Numbers of a sequence's state that generation keeps in each layer.
  std::int64_t state_size() const { return inner_size() * ssm_state_size; }
};

// What a layer consists of. Each sort but `whole` is one block behind one norm, as in hybrid models.
enum class LayerSort { whole, state_space, attention, feed_forward, experts };
std::optional<LayerSort> layer_sort_from_letter(char letter);  // M, *, -, E

struct Model {
  std::string name;
  Norm norm = Norm::rmsnorm;
  NormParameters norm_parameters = NormParameters::gain_and_bias;  // of LayerNorm
  Activation activation = Activation::swiglu;
  Position position = Position::rope;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;
  bool attention_bias = false;         // bias on Q, K, V (GPT-2, Qwen2)
  bool attention_output_bias = false;  // bias on the attention output projection (GPT-2)
  bool mlp_bias = false;               // bias on the feed-forward projections (GPT-2)
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling{};
  QkNorm qk_norm = QkNorm::none;
  // Attention's scores are divided by its root (Gemma 2 27B, Gemma 3 27B); 0: by head_dim's root.
  double query_pre_attn_scalar = 0;
  // Scores before the softmax, and the head's logits, become c tanh(x / c) (Gemma 2); 0: they stay.
  double attn_logit_softcapping = 0, final_logit_softcapping = 0;
  bool attention_sinks = false;     // one learned score a head that takes part in the softmax (gpt-oss)
  bool embedding_norm = false;      // a norm on the embeddings (BLOOM)
  double embedding_multiplier = 1;  // on embeddings as layers read them, not on a tied head (Gemma)
  NormPlacement norm_placement = NormPlacement::before;
  bool norm_gains_from_one = false;  // files store RMSNorms' gains minus 1 (Gemma)
  // The share of each head's elements that positions rotate, the first ones in files (GPT-NeoX).
  double partial_rotary_factor = 1;
  double rope_local_base_freq = 0;  // unscaled rope_theta of layers with windows (Gemma 3); 0: as in others
  bool parallel_residual = false;   // feed-forward beside attention, from the same input (GPT-J, Falcon)
  bool shared_norm = false;         // ... and both read one norm's output
  // Tokens that a query sees, itself included; 0: all. Each sliding_window_pattern-th layer sees all tokens;
  // 0: no layer does.
  std::int64_t sliding_window = 0;
  std::int64_t sliding_window_pattern = 0;
  // Attention stays within segments of so many tokens; a query sees its segment's tokens up to itself (Llama
  // 4); 0: none. Each no_rope_layer_interval-th layer sees all and has no rotary embedding; 0: no such layer.
  std::int64_t attention_chunk_size = 0;
  std::int64_t no_rope_layer_interval = 0;
  MixtureOfExperts moe{};
  LatentAttention latent{};
  StateSpace state_space{};
  // Nemotron-H's letters, one a layer: M a state-space mixer, * attention, - a feed-forward network, E
  // experts. Empty: every layer is attention and a feed-forward network (or experts).
  std::string hybrid_override_pattern{};
  // Multi-token prediction: modules of one layer each, one after the other, which only training runs.
  std::int64_t num_nextn_predict_layers = 0;
  std::string source{};  // where the shape comes from

  bool operator==(const Model&) const = default;

  bool norm_has_gain() const { return norm == Norm::rmsnorm || norm_parameters != NormParameters::none; }
  bool norm_has_bias() const {
    return norm == Norm::layernorm && norm_parameters == NormParameters::gain_and_bias;
  }
  bool has_experts() const { return moe.num_experts > 0; }
  bool has_latent_attention() const { return latent.kv_lora_rank > 0; }
  bool is_hybrid() const { return !hybrid_override_pattern.empty(); }
  LayerSort sort_of_layer(std::int64_t layer) const;
  // The number of layers of a sort in a hybrid model; in any other model all layers are `whole`.
  std::int64_t layers_of(LayerSort sort) const;
  std::int64_t attention_layers() const {
    return layers_of(LayerSort::whole) + layers_of(LayerSort::attention);
  }
  bool is_expert_layer(std::int64_t layer) const {
    if (is_hybrid()) return sort_of_layer(layer) == LayerSort::experts;
    return has_experts() && layer >= moe.first_k_dense_replace && (layer + 1) % moe.decoder_sparse_step == 0;
  }
  bool is_window_layer(std::int64_t layer) const {
    return sliding_window > 0 && (sliding_window_pattern == 0 || (layer + 1) % sliding_window_pattern != 0);
  }
  bool is_unrotated_layer(std::int64_t layer) const {
    return position == Position::rope && no_rope_layer_interval > 0 &&
           (layer + 1) % no_rope_layer_interval == 0;
  }
  bool is_chunk_layer(std::int64_t layer) const {
    return attention_chunk_size > 0 && !is_unrotated_layer(layer);
  }
  // The most tokens that a query sees in a layer with a window or with segments; 0: no such layers.
  std::int64_t reach_of_windows() const { return sliding_window > 0 ? sliding_window : attention_chunk_size; }
  // The number of layers of a kind among the first num_hidden_layers; dense_layers() counts those with a
  // feed-forward network of their own.
  std::int64_t dense_layers() const;
  std::int64_t expert_layers() const { return count_layers(&Model::is_expert_layer); }
  std::int64_t window_layers() const { return count_layers(&Model::is_window_layer); }
  std::int64_t chunk_layers() const { return count_layers(&Model::is_chunk_layer); }
  std::int64_t count_layers(bool (Model::*is_of_kind)(std::int64_t layer) const) const;

  // Width of all heads: of queries, of the values that attention returns, of keys (or values) alone.
  std::int64_t query_size() const { return num_attention_heads * head_dim; }
  std::int64_t value_size() const {
    return num_attention_heads * (has_latent_attention() ? latent.v_head_dim : head_dim);
  }
  // Elements of a head that rotary tables cover; the elements beyond rotated_size() stay as they are.
  std::int64_t rope_size() const { return has_latent_attention() ? latent.qk_rope_head_dim : head_dim; }
  // Elements of a head that positions rotate, a whole number of pairs.
  std::int64_t rotated_size() const {
    if (has_latent_attention()) return rope_size();
    return static_cast<std::int64_t>(static_cast<double>(head_dim) * partial_rotary_factor) / 2 * 2;
  }
  // Norms of a layer that is attention and a feed-forward network.
  std::int64_t norms_of_layer() const {
    return norm_placement == NormPlacement::around ? 4 : shared_norm ? 1 : 2;
  }
  bool norms_before() const { return norm_placement != NormPlacement::after; }
  bool norms_after() const { return norm_placement != NormPlacement::before; }
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }
  std::int64_t qkv_size() const { return query_size() + 2 * key_value_size(); }
  // Numbers that a layer's cache holds for a token: latent attention keeps the latent and the rotary key.
  std::int64_t cache_size() const {
    return has_latent_attention() ? latent.kv_lora_rank + latent.qk_rope_head_dim : 2 * key_value_size();
  }
  // Rows of the first feed-forward projection: gate and up together where the activation is gated.
  std::int64_t mlp_up_size() const { return up_size(intermediate_size); }
  std::int64_t up_size(std::int64_t width) const { return is_gated(activation) ? 2 * width : width; }
};

// clang-format off
template <>
inline constexpr auto kFields<Model> = [] {
  using M = Model;
  return std::tuple{
    field("attention_chunk_size", &M::attention_chunk_size, "attention-chunk", "attention chunk",
          "tokens of a segment within which queries attend; 0: they see all before them").between(0, kLongestSequence).in(FieldUnit::tokens).seldom_set(),
    field("embedding_multiplier", &M::embedding_multiplier, "", "", ""),
    field("query_pre_attn_scalar", &M::query_pre_attn_scalar, "", "", "").between(0, kLargestWidth),
    field("norm_placement", &M::norm_placement, "", "", ""),
    field("norm_gains_from_one", &M::norm_gains_from_one, "", "", ""),
    field("partial_rotary_factor", &M::partial_rotary_factor, "", "", "").between(0, 1),
    field("rope_local_base_freq", &M::rope_local_base_freq, "", "", "").at_least(0),
    field("num_nextn_predict_layers", &M::num_nextn_predict_layers, "mtp-modules", "MTP modules",
          "modules that predict further tokens in training").between(0, kMostPredictions).when(trains).seldom_set()};
}();
// clang-format on

// The number of parameters, counted tensor by tensor. The sizes must be such that validate() (scenario.h)
// finds no problem.
struct ParameterCount {
  std::int64_t embedding = 0;  // tokens and learned positions, and their norm
  std::int64_t attention_per_layer =
      0;                           // with norms inside of attention; of a layer that has it, as the next
  std::int64_t mlp_per_layer = 0;  // of a dense layer
  std::int64_t moe_per_layer = 0;  // of a layer with experts: router, shared and all routed experts
  std::int64_t state_space_per_layer = 0;
  std::int64_t norms_per_layer = 0;
  std::int64_t final_norm = 0;
  std::int64_t head = 0;    // 0 where it is tied to the embedding
  std::int64_t total = 0;   // without multi-token prediction, as in models' names
  std::int64_t active = 0;  // parameters that a token passes: only the chosen routed experts count
  std::int64_t multi_token_prediction = 0;  // its layers, which only training holds
};
ParameterCount count_parameters(const Model& model);

// Reads a Hugging Face config.json. hugging_face_config.cpp has the families of models. transformers 4 and 5
// write RoPE differently; both are read. Throws PresetError (scenario/preset.h) that names file and field.
Model model_from_hugging_face_config(std::string_view json, const std::string& file);

}  // namespace sim
