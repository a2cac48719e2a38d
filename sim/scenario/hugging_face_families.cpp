#include <algorithm>
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
  m.hidden_size = config.size(hidden);
  m.intermediate_size = 4 * m.hidden_size;
  m.num_hidden_layers = config.size(layers);
  m.num_attention_heads = m.num_key_value_heads = config.size(heads);
  m.head_dim = heads_share(config, hidden, m.hidden_size, m.num_attention_heads);
  m.vocab_size = config.size("vocab_size");
  m.attention_bias = m.attention_output_bias = m.mlp_bias = true;
  m.tie_word_embeddings = true;
  return m;
}

Model read_mixtral(HuggingFaceConfig& config) {
  Model m = read_sizes(config);
  m.moe.num_experts = config.size("num_local_experts");
  m.moe.num_experts_per_tok = config.size("num_experts_per_tok");
  m.moe.moe_intermediate_size = m.intermediate_size;
  return m;
}

// How many layers a list names: the first ones, in any order.
std::int64_t first_layers_alone(HuggingFaceConfig& config, std::string_view key) {
  JsonObject& fields = config.fields();
  if (!fields.has_value(key)) return 0;
  const Json& layers = fields.at(key);
  const auto refuse = [&] {
    fields.fail(key,
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
  JsonObject& fields = config.fields();
  Model m = read_sizes(config);
  if (family == "qwen2_moe")
    m.attention_bias = true;  // always, and its config does not say
  else
    m.qk_norm = QkNorm::per_head;
  if (family != "qwen2_moe")
    m.attention_bias = m.attention_output_bias = fields.boolean("attention_bias", false);
  if (family == "qwen3") return m;
  // transformers 5 writes the other name.
  m.moe.num_experts =
      config.size(fields.has_value("num_local_experts") ? "num_local_experts" : "num_experts");
  m.moe.num_experts_per_tok = config.size("num_experts_per_tok");
  m.moe.moe_intermediate_size = config.size("moe_intermediate_size");
  m.moe.decoder_sparse_step = config.size("decoder_sparse_step", 1);
  m.moe.first_k_dense_replace = first_layers_alone(config, "mlp_only_layers");
  m.moe.norm_topk_prob = fields.boolean("norm_topk_prob", false);
  if (fields.has_value("shared_expert_intermediate_size")) {
    m.moe.shared_expert_intermediate_size = fields.integer("shared_expert_intermediate_size");
    m.moe.shared_expert_gate = m.moe.shared_expert_intermediate_size > 0;
  }
  return m;
}

Model read_deepseek(HuggingFaceConfig& config, std::string_view family) {
  JsonObject& fields = config.fields();
  LatentAttention a;
  if (fields.has_value("q_lora_rank")) a.q_lora_rank = config.size("q_lora_rank");
  a.kv_lora_rank = config.size("kv_lora_rank");
  a.qk_nope_head_dim = config.size("qk_nope_head_dim");
  a.qk_rope_head_dim = config.size("qk_rope_head_dim");
  a.v_head_dim = config.size("v_head_dim");
  Model m = read_sizes(config);
  m.latent = a;
  m.head_dim = a.qk_nope_head_dim + a.qk_rope_head_dim;
  m.num_key_value_heads = m.num_attention_heads;
  m.moe.num_experts = config.size("n_routed_experts");
  m.moe.num_experts_per_tok = config.size("num_experts_per_tok");
  m.moe.moe_intermediate_size = config.size("moe_intermediate_size");
  m.moe.shared_expert_intermediate_size = fields.integer("n_shared_experts", 0) * m.moe.moe_intermediate_size;
  m.moe.first_k_dense_replace = fields.integer("first_k_dense_replace", 0);
  m.moe.n_group = config.size("n_group", 1);
  m.moe.topk_group = config.size("topk_group", 1);
  m.moe.router_bias = family == "deepseek_v3";  // of its balance without a loss
  m.moe.scoring_func = family == "deepseek_v3" ? ScoringFunc::sigmoid : ScoringFunc::softmax;
  m.moe.norm_topk_prob = fields.boolean("norm_topk_prob", family == "deepseek_v3");
  m.moe.routed_scaling_factor = fields.number("routed_scaling_factor", family == "deepseek_v3" ? 2.5 : 1.0);
  m.num_nextn_predict_layers = fields.integer("num_nextn_predict_layers", 0);
  if (fields.integer("moe_layer_freq", 1) != 1)
    fields.fail("moe_layer_freq", "must be 1: all layers after first_k_dense_replace have experts");
  return m;
}

// Norms of queries and keys there have no parameters, and are left out.
Model read_llama4(HuggingFaceConfig& config) {
  Model m = read_sizes(config);
  m.moe.num_experts = config.size("num_local_experts");
  m.moe.num_experts_per_tok = config.size("num_experts_per_tok");
  m.moe.moe_intermediate_size = m.moe.shared_expert_intermediate_size = m.intermediate_size;
  m.moe.decoder_sparse_step = config.size("interleave_moe_layer_step", 1);
  m.moe.scoring_func = ScoringFunc::sigmoid;
  m.moe.norm_topk_prob = false;
  m.intermediate_size = config.size("intermediate_size_mlp");
  m.attention_chunk_size = config.size("attention_chunk_size", 8192);
  m.no_rope_layer_interval = config.size("no_rope_layer_interval", 4);
  return m;
}

Model read_gpt_oss(HuggingFaceConfig& config) {
  Model m = read_sizes(config);
  m.attention_bias = m.attention_output_bias = m.mlp_bias = m.attention_sinks = true;
  m.sliding_window = config.size("sliding_window");
  m.sliding_window_pattern = 2;  // layer_types alternate, a window first
  m.moe.num_experts = config.size("num_local_experts");
  m.moe.num_experts_per_tok = config.size("num_experts_per_tok");
  m.moe.moe_intermediate_size = m.intermediate_size;
  m.moe.router_bias = true;
  return m;
}

Model read_bloom(HuggingFaceConfig& config) {
  JsonObject& fields = config.fields();
  const bool short_names = fields.has("n_embed");  // as BLOOM-176B's own config writes it
  Model m = gpt_like(config, short_names ? "n_embed" : "hidden_size", "n_layer",
                     fields.has("num_attention_heads") ? "num_attention_heads" : "n_head");
  m.position = Position::alibi;
  m.embedding_norm = true;
  m.norm_eps = config.positive("layer_norm_epsilon");
  m.max_position_embeddings = config.size("seq_length", 2048);  // what it was trained on: ALiBi has no bound
  return m;
}

Model read_opt(HuggingFaceConfig& config) {
  JsonObject& fields = config.fields();
  Model m = gpt_like(config, "hidden_size", "num_hidden_layers", "num_attention_heads");
  m.position = Position::learned;
  m.intermediate_size = config.size("ffn_dim");
  m.max_position_embeddings = config.size("max_position_embeddings") + 2;  // transformers' offset
  const std::string activation = fields.text("activation_function", "relu");
  if (activation != "relu" && activation != "gelu")
    fields.fail("activation_function", "must be relu or gelu, but is \"" + activation + "\"");
  if (activation == "relu") m.activation = Activation::relu;
  if (fields.has_value("word_embed_proj_dim") && config.size("word_embed_proj_dim") != m.hidden_size)
    fields.fail("word_embed_proj_dim", "must be hidden_size: embeddings are not projected here");
  config.refuse_unless("do_layer_norm_before", true, true);
  return m;
}

Model read_gpt_neox(HuggingFaceConfig& config) {
  JsonObject& fields = config.fields();
  Model m = gpt_like(config, "hidden_size", "num_hidden_layers", "num_attention_heads");
  m.intermediate_size = config.size("intermediate_size");
  m.max_position_embeddings = config.size("max_position_embeddings");
  m.norm_eps = config.positive("layer_norm_eps");
  m.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  m.parallel_residual = fields.boolean("use_parallel_residual", true);
  return m;
}

Model read_gptj(HuggingFaceConfig& config) {
  JsonObject& fields = config.fields();
  Model m = gpt_like(config, "n_embd", "n_layer", "n_head");
  m.max_position_embeddings = config.size("n_positions");
  m.norm_eps = config.positive("layer_norm_epsilon");
  m.attention_bias = m.attention_output_bias = false;
  m.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  m.parallel_residual = m.shared_norm = true;
  return m;
}

Model read_falcon(HuggingFaceConfig& config) {
  JsonObject& fields = config.fields();
  Model m = gpt_like(config, "hidden_size", "num_hidden_layers", "num_attention_heads");
  const bool new_architecture = fields.boolean("new_decoder_architecture", false);
  if (new_architecture)
    m.num_key_value_heads = config.size("num_kv_heads");
  else if (fields.boolean("multi_query", true))
    m.num_key_value_heads = 1;
  if (fields.boolean("alibi", false)) m.position = Position::alibi;
  m.attention_bias = m.attention_output_bias = m.mlp_bias = fields.boolean("bias", false);
  m.norm_eps = config.positive("layer_norm_epsilon");
  m.max_position_embeddings = config.size("max_position_embeddings", 2048);
  m.parallel_residual = new_architecture || fields.boolean("parallel_attn", true);
  m.shared_norm = m.parallel_residual && !new_architecture;
  return m;
}

// Nemotron-H and Nemotron 3: a letter a layer; attention has no positions.
Model read_nemotron_h(HuggingFaceConfig& config) {
  JsonObject& fields = config.fields();
  Model m;
  m.activation = Activation::squared_relu;
  m.position = Position::none;
  m.hidden_size = config.size("hidden_size");
  m.intermediate_size = config.size("intermediate_size");
  m.num_hidden_layers = config.size("num_hidden_layers");
  m.hybrid_override_pattern = fields.text("hybrid_override_pattern");
  m.num_attention_heads = config.size("num_attention_heads");
  m.num_key_value_heads = config.size("num_key_value_heads", m.num_attention_heads);
  m.head_dim = config.size(fields.has_value("head_dim") ? "head_dim" : "attention_head_dim");
  m.vocab_size = config.size("vocab_size");
  m.max_position_embeddings = config.size("max_position_embeddings");
  m.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  m.norm_eps = config.positive("layer_norm_epsilon");
  StateSpace& s = m.state_space;
  s.mamba_num_heads = config.size("mamba_num_heads");
  s.mamba_head_dim = config.size("mamba_head_dim");
  s.ssm_state_size = config.size("ssm_state_size");
  s.n_groups = config.size("n_groups");
  s.conv_kernel = config.size("conv_kernel");
  s.chunk_size = config.size("chunk_size");
  if (m.layers_of(LayerSort::experts) > 0) {
    m.moe.num_experts = config.size("n_routed_experts");
    m.moe.num_experts_per_tok = config.size("num_experts_per_tok");
    m.moe.moe_intermediate_size = config.size("moe_intermediate_size");
    m.moe.shared_expert_intermediate_size = fields.integer("moe_shared_expert_intermediate_size", 0);
    m.moe.n_group = config.size("n_group", 1);
    m.moe.topk_group = config.size("topk_group", 1);
    m.moe.router_bias = true;  // of its balance without a loss
    m.moe.scoring_func = ScoringFunc::sigmoid;
    m.moe.norm_topk_prob = fields.boolean("norm_topk_prob", true);
    m.moe.routed_scaling_factor = fields.number("routed_scaling_factor", 1.0);
  }
  const std::string activation = fields.text("mlp_hidden_act", "relu2");
  if (activation != "relu2") fields.fail("mlp_hidden_act", "must be relu2, but is \"" + activation + "\"");
  config.refuse_unless("use_conv_bias", true, true);
  config.refuse_unless("mamba_proj_bias", false, false);
  config.refuse_unless("attention_bias", false, false);
  config.refuse_unless("mlp_bias", false, false);
  return m;
}

}  // namespace

std::optional<Model> read_predicted_family(HuggingFaceConfig& config, std::string_view family) {
  if (family == "mixtral") return read_mixtral(config);
  if (family == "qwen2_moe" || family == "qwen3" || family == "qwen3_moe") return read_qwen(config, family);
  if (family == "deepseek_v2" || family == "deepseek_v3") return read_deepseek(config, family);
  if (family == "llama4_text") return read_llama4(config);
  if (family == "gpt_oss") return read_gpt_oss(config);
  if (family == "bloom") return read_bloom(config);
  if (family == "opt") return read_opt(config);
  if (family == "gpt_neox") return read_gpt_neox(config);
  if (family == "gptj") return read_gptj(config);
  if (family == "falcon") return read_falcon(config);
  if (family == "nemotron_h") return read_nemotron_h(config);
  if (family == "gemma") {
    Model m = read_sizes(config);
    m.activation = Activation::geglu;
    m.tie_word_embeddings = config.fields().boolean("tie_word_embeddings", true);
    return m;
  }
  if (family == "olmo2") {  // norms follow attention and feed-forward there: the same work
    Model m = read_sizes(config);
    m.qk_norm = QkNorm::all_heads;
    return m;
  }
  return std::nullopt;
}

}  // namespace sim
