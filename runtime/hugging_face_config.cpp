#include "runtime/hugging_face_config.h"

#include <nlohmann/json.hpp>

#include "runtime/error.h"

namespace runtime {
namespace {

using json = nlohmann::ordered_json;

json rope_scaling(const sim::RopeScaling& scaling) {
  switch (scaling.kind) {
    case sim::RopeScaling::Kind::none:
      return nullptr;
    case sim::RopeScaling::Kind::linear:
      return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case sim::RopeScaling::Kind::llama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
    case sim::RopeScaling::Kind::yarn:
      return {{"rope_type", "yarn"},
              {"factor", scaling.factor},
              {"beta_fast", scaling.beta_fast},
              {"beta_slow", scaling.beta_slow},
              {"truncate", scaling.truncate},
              {"attention_factor", scaling.attention_factor},
              {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
  }
  return nullptr;
}

json gpt2_config(const sim::Model& m) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", m.norm_eps},
          {"n_embd", m.hidden_size},
          {"n_head", m.num_attention_heads},
          {"n_inner", m.intermediate_size},
          {"n_layer", m.num_hidden_layers},
          {"n_positions", m.max_position_embeddings},
          {"tie_word_embeddings", m.tie_word_embeddings},
          {"torch_dtype", "float32"},
          {"vocab_size", m.vocab_size}};
}

json nemotron_h_config(const sim::Model& m) {
  return {{"architectures", {"NemotronHForCausalLM"}},
          {"model_type", "nemotron_h"},
          {"attention_bias", m.attention_bias},
          {"chunk_size", m.state_space.chunk_size},
          {"conv_kernel", m.state_space.conv_kernel},
          {"head_dim", m.head_dim},
          {"hidden_size", m.hidden_size},
          {"hybrid_override_pattern", m.hybrid_override_pattern},
          {"intermediate_size", m.intermediate_size},
          {"layer_norm_epsilon", m.norm_eps},
          {"mamba_head_dim", m.state_space.mamba_head_dim},
          {"mamba_num_heads", m.state_space.mamba_num_heads},
          {"max_position_embeddings", m.max_position_embeddings},
          {"mlp_bias", m.mlp_bias},
          {"mlp_hidden_act", "relu2"},
          {"n_groups", m.state_space.n_groups},
          {"num_attention_heads", m.num_attention_heads},
          {"num_hidden_layers", m.num_hidden_layers},
          {"num_key_value_heads", m.num_key_value_heads},
          {"ssm_state_size", m.state_space.ssm_state_size},
          {"tie_word_embeddings", m.tie_word_embeddings},
          {"torch_dtype", "float32"},
          {"use_conv_bias", true},
          {"vocab_size", m.vocab_size}};
}

json llama_config(const sim::Model& m) {
  const bool qwen2 = m.attention_bias && !m.attention_output_bias;
  json config = {{"architectures", {qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
                 {"model_type", qwen2 ? "qwen2" : "llama"},
                 {"head_dim", m.head_dim},
                 {"hidden_act", "silu"},
                 {"hidden_size", m.hidden_size},
                 {"intermediate_size", m.intermediate_size},
                 {"max_position_embeddings", m.max_position_embeddings},
                 {"num_attention_heads", m.num_attention_heads},
                 {"num_hidden_layers", m.num_hidden_layers},
                 {"num_key_value_heads", m.num_key_value_heads},
                 {"rms_norm_eps", m.norm_eps},
                 {"rope_scaling", rope_scaling(m.rope_scaling)},
                 {"rope_theta", m.rope_theta},
                 {"tie_word_embeddings", m.tie_word_embeddings},
                 {"torch_dtype", "float32"},
                 {"vocab_size", m.vocab_size}};
  if (!qwen2) {
    config["attention_bias"] = m.attention_bias;
    config["mlp_bias"] = m.mlp_bias;
  }
  return config;
}

json bloom_config(const sim::Model& m) {
  return {{"architectures", {"BloomForCausalLM"}},
          {"model_type", "bloom"},
          {"apply_residual_connection_post_layernorm", false},
          {"attention_dropout", 0.0},
          {"hidden_dropout", 0.0},
          {"hidden_size", m.hidden_size},
          {"layer_norm_epsilon", m.norm_eps},
          {"n_head", m.num_attention_heads},
          {"n_layer", m.num_hidden_layers},
          {"seq_length", m.max_position_embeddings},
          {"tie_word_embeddings", m.tie_word_embeddings},
          {"torch_dtype", "float32"},
          {"vocab_size", m.vocab_size}};
}

// Mixtral, Qwen2-MoE, Qwen3 and Qwen3-MoE: Llama's fields and their own.
json mixture_or_qwen3_config(const sim::Model& m) {
  json config = llama_config(m);
  const bool qwen3 = m.qk_norm == sim::QkNorm::per_head, experts = m.has_experts();
  const char* const family = !qwen3    ? m.moe.shared_expert_gate ? "qwen2_moe" : "mixtral"
                             : experts ? "qwen3_moe"
                                       : "qwen3";
  const char* const architecture =
      !qwen3    ? m.moe.shared_expert_gate ? "Qwen2MoeForCausalLM" : "MixtralForCausalLM"
      : experts ? "Qwen3MoeForCausalLM"
                : "Qwen3ForCausalLM";
  config["model_type"] = family;
  config["architectures"] = json::array({architecture});
  if (!experts) return config;
  const sim::MixtureOfExperts& e = m.moe;
  config["num_experts_per_tok"] = e.num_experts_per_tok;
  config["norm_topk_prob"] = e.norm_topk_prob;
  if (!qwen3 && !e.shared_expert_gate) {
    config["num_local_experts"] = e.num_experts;
    return config;
  }
  config["num_experts"] = e.num_experts;
  config["moe_intermediate_size"] = e.moe_intermediate_size;
  config["decoder_sparse_step"] = e.decoder_sparse_step;
  if (e.shared_expert_gate) config["shared_expert_intermediate_size"] = e.shared_expert_intermediate_size;
  return config;
}

json mistral_config(const sim::Model& m) {
  json config = llama_config(m);
  config["model_type"] = "mistral";
  config["architectures"] = json::array({"MistralForCausalLM"});
  config["sliding_window"] = m.sliding_window;
  config.erase("attention_bias");
  config.erase("mlp_bias");
  return config;
}

// Whether reading the config gives the model again: no family that is written has every combination.
bool is_read_as(const std::string& config, const sim::Model& model) {
  sim::Model expected = model, read = sim::model_from_hugging_face_config(config, "config.json");
  for (sim::Model* m : {&expected, &read}) m->name = m->source = "";
  return read == expected;
}

// What families of a later day have, beside GPT-2's, Llama's, Qwen2's and Nemotron-H's.
bool has_other_features(const sim::Model& m) {
  return m.has_experts() || m.qk_norm != sim::QkNorm::none || m.position == sim::Position::alibi ||
         m.embedding_norm || m.parallel_residual || m.sliding_window > 0 || m.attention_chunk_size > 0 ||
         m.no_rope_layer_interval > 0 || m.activation == sim::Activation::relu ||
         m.activation == sim::Activation::geglu || m.activation == sim::Activation::gelu_exact ||
         m.norm_placement != sim::NormPlacement::before || m.embedding_multiplier != 1 ||
         m.query_pre_attn_scalar != 0 ||
         m.attn_logit_softcapping > 0 || m.final_logit_softcapping > 0;
}

json config_of(const sim::Model& m) {
  if (m.is_hybrid()) return nemotron_h_config(m);
  if (m.position == sim::Position::learned) return gpt2_config(m);
  if (m.position == sim::Position::alibi) return bloom_config(m);
  if (m.has_experts() || m.qk_norm != sim::QkNorm::none) return mixture_or_qwen3_config(m);
  return m.sliding_window > 0 ? mistral_config(m) : llama_config(m);
}

}  // namespace

std::string hugging_face_config(const sim::Model& model) {
  const std::string config = config_of(model).dump(2) + "\n";
  if (has_other_features(model) && !is_read_as(config, model))
    throw InputError(
        "model " + model.name +
        " cannot be saved: no family of config.json that is written here has its shape (gpt2, llama, "
        "mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, bloom, nemotron_h); train it without "
        "saving");
  return config;
}

}  // namespace runtime
