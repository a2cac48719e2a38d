#include "runtime/hugging_face_config.h"

#include <nlohmann/json.hpp>

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

}  // namespace

std::string hugging_face_config(const sim::Model& model) {
  return (model.is_hybrid()                          ? nemotron_h_config(model)
          : model.position == sim::Position::learned ? gpt2_config(model)
                                                     : llama_config(model))
             .dump(2) +
         "\n";
}

}  // namespace runtime
