#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "sim/scenario/hugging_face_reader.h"

namespace sim {
namespace {

// transformers' GPT-likes: LayerNorm, GELU or ReLU, biases everywhere.
Model gpt_like(HuggingFaceConfig& config, const char* hidden, const char* layers, const char* heads) {
  Model m;
  m.norm = Norm::layernorm;
  m.activation = Activation::gelu;
  m.hidden_size = config.factor(hidden);
  m.intermediate_size = 4 * m.hidden_size;
  m.num_hidden_layers = config.size(layers);
  m.num_attention_heads = m.num_key_value_heads = config.size(heads);
  m.head_dim = heads_share(config, hidden, m.hidden_size, m.num_attention_heads);
  m.vocab_size = config.size("vocab_size");
  m.attention_bias = m.attention_output_bias = m.mlp_bias = true;
  m.tie_word_embeddings = true;
  return m;
}

// Which GELU, by transformers' names for the two forms; `usual` where the file names none.
Activation gelu_of(HuggingFaceConfig& config, std::string_view key, std::string_view usual) {
  const std::string word = config.one_of(key, {"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"}, usual);
  return word == "gelu" ? Activation::gelu_exact : Activation::gelu;
}

// Reads how many experts there are, how many a token goes to, and their width: feed-forward's or their own.
void read_experts(HuggingFaceConfig& config, const char* number, bool own_width, Model& m) {
  m.moe.num_experts = config.size(number);
  m.moe.num_experts_per_tok = config.size("num_experts_per_tok");
  m.moe.moe_intermediate_size = own_width ? config.factor("moe_intermediate_size") : m.intermediate_size;
}

Model read_mixtral(HuggingFaceConfig& config, std::string_view) {
  Model m = read_sizes(config);
  read_experts(config, "num_local_experts", false, m);
  read_window(config, m);
  return m;
}

// How many layers a list names. It must name the first ones, in any order.
std::int64_t first_layers_alone(HuggingFaceConfig& config, std::string_view key) {
  if (!config.has_value(key)) return 0;
  const Json& layers = config.at(key);
  const auto refuse = [&] {
    config.fail(key,
                "must list the first layers alone, as [0, 1, 2]: plans have dense layers before those "
                "with experts");
  };
  if (!layers.is_array()) refuse();
  std::vector<bool> named(layers.size());
  for (const Json& layer : layers) {
    if (!layer.is_number_unsigned() || layer.get<std::size_t>() >= named.size()) refuse();
    named[layer.get<std::size_t>()] = true;
  }
  if (std::ranges::find(named, false) != named.end()) refuse();
  return std::ssize(named);
}

Model read_qwen(HuggingFaceConfig& config, std::string_view family) {
  Model m = read_sizes(config);
  if (family == "qwen2_moe")
    m.attention_bias = true;  // always, and its config does not say
  else
    m.qk_norm = QkNorm::per_head;
  if (family != "qwen2_moe")
    m.attention_bias = m.attention_output_bias = config.boolean("attention_bias", false);
  if (family == "qwen3") return m;
  // transformers 5 writes the other name.
  read_experts(config, config.has_value("num_local_experts") ? "num_local_experts" : "num_experts", true, m);
  m.moe.decoder_sparse_step = config.size("decoder_sparse_step", 1);
  m.moe.first_k_dense_replace = first_layers_alone(config, "mlp_only_layers");
  m.moe.norm_topk_prob = config.boolean("norm_topk_prob", false);
  if (config.has_value("shared_expert_intermediate_size")) {
    m.moe.shared_expert_intermediate_size = config.integer("shared_expert_intermediate_size");
    m.moe.shared_expert_gate = m.moe.shared_expert_intermediate_size > 0;
  }
  return m;
}

Model read_deepseek(HuggingFaceConfig& config, std::string_view family) {
  LatentAttention a;
  if (config.has_value("q_lora_rank")) a.q_lora_rank = config.size("q_lora_rank");
  a.kv_lora_rank = config.size("kv_lora_rank");
  a.qk_nope_head_dim = config.factor("qk_nope_head_dim");
  a.qk_rope_head_dim = config.factor("qk_rope_head_dim");
  a.v_head_dim = config.size("v_head_dim");
  Model m = read_sizes(config);
  m.latent = a;
  m.head_dim = a.qk_nope_head_dim + a.qk_rope_head_dim;
  m.num_key_value_heads = m.num_attention_heads;
  read_experts(config, "n_routed_experts", true, m);
  if (config.has("n_shared_experts"))
    m.moe.shared_expert_intermediate_size =
        config.factor("n_shared_experts", 0) * m.moe.moe_intermediate_size;
  m.moe.first_k_dense_replace = config.integer("first_k_dense_replace", 0);
  m.moe.n_group = config.size("n_group", 1);
  m.moe.topk_group = config.size("topk_group", 1);
  m.moe.router_bias = family == "deepseek_v3";  // for its load balance without a loss
  m.moe.scoring_func = family == "deepseek_v3" ? ScoringFunc::sigmoid : ScoringFunc::softmax;
  m.moe.norm_topk_prob = config.boolean("norm_topk_prob", family == "deepseek_v3");
  m.moe.routed_scaling_factor = config.number("routed_scaling_factor", family == "deepseek_v3" ? 2.5 : 1.0);
  m.num_nextn_predict_layers = config.integer("num_nextn_predict_layers", 0);
  if (config.integer("moe_layer_freq", 1) != 1)
    config.fail("moe_layer_freq", "must be 1: all layers after first_k_dense_replace have experts");
  return m;
}

// Queries of layers without positions grow with the logarithm of their position from floor_scale (8192) on.
// This is left out: below that position their factor is 1.
Model read_llama4(HuggingFaceConfig& config, std::string_view) {
  Model m = read_sizes(config);
  if (config.boolean("use_qk_norm", true)) m.qk_norm = QkNorm::without_gain;
  m.moe.weights_on = ExpertWeights::input;
  read_experts(config, "num_local_experts", false, m);
  m.moe.shared_expert_intermediate_size = m.intermediate_size;
  m.moe.decoder_sparse_step = config.size("interleave_moe_layer_step", 1);
  m.moe.scoring_func = ScoringFunc::sigmoid;
  m.moe.norm_topk_prob = false;
  m.intermediate_size = config.size("intermediate_size_mlp");
  m.attention_chunk_size = config.size("attention_chunk_size", 8192);
  m.no_rope_layer_interval = config.size("no_rope_layer_interval", 4);
  return m;
}

Model read_gpt_oss(HuggingFaceConfig& config, std::string_view) {
  Model m = read_sizes(config);
  m.activation = Activation::clamped_swiglu;
  m.moe.weights_on = ExpertWeights::output;
  if (config.has_value("swiglu_limit") && config.number("swiglu_limit") != 7)
    config.fail("swiglu_limit", "must be 7, as published models have it");
  m.attention_bias = m.attention_output_bias = m.mlp_bias = m.attention_sinks = true;
  m.sliding_window = config.size("sliding_window");
  m.sliding_window_pattern = 2;  // layer_types alternate, a window first
  read_experts(config, "num_local_experts", false, m);
  m.moe.router_bias = true;
  return m;
}

Model read_bloom(HuggingFaceConfig& config, std::string_view) {
  const bool short_names = config.has("n_embed");  // as BLOOM-176B's own config writes it
  Model m = gpt_like(config, short_names ? "n_embed" : "hidden_size", "n_layer",
                     config.has("num_attention_heads") ? "num_attention_heads" : "n_head");
  m.position = Position::alibi;
  m.embedding_norm = true;
  m.norm_eps = config.positive("layer_norm_epsilon");
  m.max_position_embeddings = config.size("seq_length", 2048);  // what it was trained on: ALiBi has no bound
  return m;
}

Model read_mpt(HuggingFaceConfig& config, std::string_view) {
  Model m = gpt_like(config, "d_model", "n_layers", "n_heads");
  m.activation = Activation::gelu_exact;
  m.position = Position::alibi;
  m.norm_parameters = NormParameters::gain;
  m.attention_bias = m.attention_output_bias = m.mlp_bias = false;
  m.intermediate_size =
      (config.has_value("expansion_ratio") ? config.factor("expansion_ratio") : 4) * m.hidden_size;
  m.max_position_embeddings = config.size("max_seq_len", 2048);  // what it was trained on: ALiBi has no bound
  m.norm_eps = config.has_value("layer_norm_epsilon") ? config.positive("layer_norm_epsilon") : 1e-5;
  m.tie_word_embeddings = config.boolean("tie_word_embeddings", true);
  config.refuse_unless("no_bias", true, true);
  if (config.has_value("logit_scale"))
    config.fail("logit_scale", "must be absent: logits are not scaled here");
  if (!config.has_value("attn_config")) return m;
  JsonObject attention = config.object("attn_config");
  for (const char* const absent : {"clip_qkv", "softmax_scale"})
    if (attention.has_value(absent)) attention.fail(absent, "must be absent: no plan is made for it");
  for (const char* const off : {"prefix_lm", "qk_ln"})
    if (attention.boolean(off, false)) attention.fail(off, "must be false: no plan is made for it");
  if (!attention.boolean("alibi", true))
    attention.fail("alibi", "must be true: MPT's learned positions are not read");
  if (attention.has_value("alibi_bias_max") && attention.number("alibi_bias_max") != 8)
    attention.fail("alibi_bias_max", "must be 8");
  return m;
}

Model read_opt(HuggingFaceConfig& config, std::string_view) {
  Model m = gpt_like(config, "hidden_size", "num_hidden_layers", "num_attention_heads");
  m.position = Position::learned;
  m.intermediate_size = config.size("ffn_dim");
  m.max_position_embeddings =
      config.factor("max_position_embeddings", 1, kLongestSequence) + 2;  // transformers' offset
  m.activation = config.one_of("activation_function", {"relu", "gelu"}) == "relu" ? Activation::relu
                                                                                  : Activation::gelu_exact;
  if (config.has_value("word_embed_proj_dim") && config.size("word_embed_proj_dim") != m.hidden_size)
    config.fail("word_embed_proj_dim", "must be hidden_size: embeddings are not projected here");
  config.refuse_unless("do_layer_norm_before", true, true);
  return m;
}

Model read_gpt_neox(HuggingFaceConfig& config, std::string_view) {
  Model m = gpt_like(config, "hidden_size", "num_hidden_layers", "num_attention_heads");
  m.intermediate_size = config.size("intermediate_size");
  m.max_position_embeddings = config.size("max_position_embeddings");
  m.norm_eps = config.positive("layer_norm_eps");
  m.tie_word_embeddings = config.boolean("tie_word_embeddings", false);
  m.parallel_residual = config.boolean("use_parallel_residual", true);
  m.activation = gelu_of(config, "hidden_act", "gelu");
  m.attention_bias = m.attention_output_bias = config.boolean("attention_bias", true);
  if (config.has_value("rotary_pct")) m.partial_rotary_factor = config.positive("rotary_pct");
  if (config.has_value("rotary_emb_base")) m.rope_theta = config.positive("rotary_emb_base");
  return m;
}

Model read_gptj(HuggingFaceConfig& config, std::string_view) {
  Model m = gpt_like(config, "n_embd", "n_layer", "n_head");
  m.max_position_embeddings = config.size("n_positions");
  m.norm_eps = config.positive("layer_norm_epsilon");
  m.attention_bias = m.attention_output_bias = false;
  m.tie_word_embeddings = config.boolean("tie_word_embeddings", false);
  m.parallel_residual = m.shared_norm = true;
  m.activation = gelu_of(config, "activation_function", "gelu_new");
  m.partial_rotary_factor =
      static_cast<double>(config.size("rotary_dim", 64)) / static_cast<double>(m.head_dim);
  return m;
}

Model read_falcon(HuggingFaceConfig& config, std::string_view) {
  Model m = gpt_like(config, "hidden_size", "num_hidden_layers", "num_attention_heads");
  const bool new_architecture = config.boolean("new_decoder_architecture", false);
  if (new_architecture)
    m.num_key_value_heads = config.size("num_kv_heads");
  else if (config.boolean("multi_query", true))
    m.num_key_value_heads = 1;
  if (config.boolean("alibi", false)) m.position = Position::alibi;
  m.attention_bias = m.attention_output_bias = m.mlp_bias = config.boolean("bias", false);
  m.norm_eps = config.positive("layer_norm_epsilon");
  m.max_position_embeddings = config.size("max_position_embeddings", 2048);
  m.parallel_residual = new_architecture || config.boolean("parallel_attn", true);
  m.shared_norm =
      m.parallel_residual && (!new_architecture || config.integer("num_ln_in_parallel_attn", 2) == 1);
  m.activation = gelu_of(config, "activation", "gelu");
  m.intermediate_size = config.size("ffn_hidden_size", m.intermediate_size);
  m.tie_word_embeddings = config.boolean("tie_word_embeddings", true);
  return m;
}

// Reads a list of all layers' types. Returns n where each n-th layer sees all tokens; 0: no layer does.
std::int64_t pattern_of_layer_types(HuggingFaceConfig& config, std::int64_t layers) {
  const Json& types = config.at("layer_types");
  std::int64_t pattern = 0;
  const auto is_full = [&](std::int64_t l) {
    const Json& type = types[static_cast<std::size_t>(l)];
    return type.is_string() && type.get<std::string>() == "full_attention";
  };
  if (!types.is_array() || std::ssize(types) != layers)
    config.fail("layer_types", "must have a word for each layer");
  for (std::int64_t l = 0; l < layers && pattern == 0; ++l)
    if (is_full(l)) pattern = l + 1;
  for (std::int64_t l = 0; l < layers; ++l)
    if (is_full(l) != (pattern > 0 && (l + 1) % pattern == 0))
      config.fail("layer_types",
                  "must name each n-th layer full_attention and no other: plans have such patterns");
  return pattern;
}

// transformers 5, Gemma3TextConfig: files of the larger models say where they differ.
constexpr std::string_view kGemma3Defaults = R"({
  "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "sliding_window": 4096,
  "query_pre_attn_scalar": 256
})";

// Gains are stored less 1, and embeddings are scaled by the root of their width. Gemma 2 has norms around
// each part and caps scores and logits. Gemma 3 also norms queries and keys, and rotates layers with windows
// by another base.
Model read_gemma(HuggingFaceConfig& config, std::string_view family) {
  Model m = read_sizes(config);
  m.activation = Activation::geglu;
  m.norm_gains_from_one = true;
  m.embedding_multiplier = std::sqrt(static_cast<double>(m.hidden_size));
  m.tie_word_embeddings = config.boolean("tie_word_embeddings", true);
  if (family == "gemma") return m;
  m.norm_placement = NormPlacement::around;
  const bool second = family == "gemma2";
  m.sliding_window = config.size("sliding_window");
  m.sliding_window_pattern = config.has_value("layer_types")
                                 ? pattern_of_layer_types(config, m.num_hidden_layers)
                                 : config.size("sliding_window_pattern", second ? 2 : 6);
  if (!second) {
    m.qk_norm = QkNorm::per_head;
    m.rope_local_base_freq =
        config.has_value("rope_local_base_freq") ? config.positive("rope_local_base_freq") : 10000;
  }
  const auto cap = [&](const char* name) { return config.has_value(name) ? config.positive(name) : 0.0; };
  m.attn_logit_softcapping = cap("attn_logit_softcapping");
  m.final_logit_softcapping = cap("final_logit_softcapping");
  if (config.has_value("query_pre_attn_scalar")) {
    const double scalar = config.positive("query_pre_attn_scalar");
    if (scalar != static_cast<double>(m.head_dim)) m.query_pre_attn_scalar = scalar;
  }
  if (config.has_value("use_bidirectional_attention") && config.boolean("use_bidirectional_attention"))
    config.fail("use_bidirectional_attention", "must be false: tokens see those before them");
  return m;
}

// Nemotron-H and Nemotron 3: the pattern has a letter for each layer; attention has no positions.
Model read_nemotron_h(HuggingFaceConfig& config, std::string_view) {
  Model m = read_sizes(config, "layer_norm_epsilon", "attention_head_dim");
  m.activation = Activation::squared_relu;
  m.position = Position::none;
  m.hybrid_override_pattern = config.text("hybrid_override_pattern");
  StateSpace& s = m.state_space;
  s.mamba_num_heads = config.size("mamba_num_heads");
  s.mamba_head_dim = config.size("mamba_head_dim");
  s.ssm_state_size = config.size("ssm_state_size");
  s.n_groups = config.size("n_groups");
  s.conv_kernel = config.size("conv_kernel");
  s.chunk_size = config.size("chunk_size");
  if (m.layers_of(LayerSort::experts) > 0) {
    read_experts(config, "n_routed_experts", true, m);
    m.moe.shared_expert_intermediate_size = config.integer("moe_shared_expert_intermediate_size", 0);
    m.moe.n_group = config.size("n_group", 1);
    m.moe.topk_group = config.size("topk_group", 1);
    m.moe.router_bias = true;  // for its load balance without a loss
    m.moe.scoring_func = ScoringFunc::sigmoid;
    m.moe.norm_topk_prob = config.boolean("norm_topk_prob", true);
    m.moe.routed_scaling_factor = config.number("routed_scaling_factor", 1.0);
  }
  config.one_of("mlp_hidden_act", {"relu2"});
  config.refuse_unless("use_conv_bias", true, true);
  config.refuse_unless("mamba_proj_bias", false, false);
  config.refuse_unless("attention_bias", false, false);
  config.refuse_unless("mlp_bias", false, false);
  return m;
}

Model read_olmo2(HuggingFaceConfig& config, std::string_view) {
  Model m = read_sizes(config);
  m.qk_norm = QkNorm::all_heads;
  m.norm_placement = NormPlacement::after;
  m.attention_bias = m.attention_output_bias = config.boolean("attention_bias", false);
  return m;
}

}  // namespace

std::span<const HuggingFaceFamily> other_families() {
  static constexpr HuggingFaceFamily kFamilies[] = {{"mixtral", read_mixtral, true},
                                                    {"qwen2_moe", read_qwen, true},
                                                    {"qwen3", read_qwen, true},
                                                    {"qwen3_moe", read_qwen, true},
                                                    {"deepseek_v2", read_deepseek},
                                                    {"deepseek_v3", read_deepseek},
                                                    {"llama4_text", read_llama4, true},
                                                    {"gpt_oss", read_gpt_oss, true},
                                                    {"gemma", read_gemma, true},
                                                    {"gemma2", read_gemma, true},
                                                    {"gemma3_text", read_gemma, true, kGemma3Defaults},
                                                    {"olmo2", read_olmo2, true},
                                                    {"bloom", read_bloom},
                                                    {"mpt", read_mpt},
                                                    {"opt", read_opt},
                                                    {"gpt_neox", read_gpt_neox, true},
                                                    {"gptj", read_gptj},
                                                    {"falcon", read_falcon, true},
                                                    {"nemotron_h", read_nemotron_h}};
  return kFamilies;
}

}  // namespace sim
