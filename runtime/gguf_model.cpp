#include "runtime/gguf_model.h"

#include <string>

#include "runtime/error.h"

namespace runtime {

sim::Model model_from_gguf(const Gguf& file) {
  const std::string architecture(file.string("general.architecture"));
  const bool gpt2 = architecture == "gpt2";
  if (!gpt2 && architecture != "llama" && architecture != "qwen2")
    throw InputError(file.path().string() + ": general.architecture is " + architecture +
                     "; llama, qwen2 and gpt2 are accepted");
  const auto key = [&](const char* name) { return architecture + "." + name; };
  const auto integer = [&](const char* name) { return file.integer(key(name)); };
  const auto integer_or = [&](const char* name, std::int64_t otherwise) {
    return file.has(key(name)) ? integer(name) : otherwise;
  };
  const auto number_or = [&](const char* name, double otherwise) {
    return file.has(key(name)) ? file.number(key(name)) : otherwise;
  };
  if (integer_or("expert_count", 0) > 0)
    throw InputError(file.path().string() + ": " + key("expert_count") + " is " +
                     std::to_string(integer("expert_count")) + "; dense models are accepted");

  sim::Model m;
  m.source = "GGUF metadata";
  if (file.has("general.name")) m.name = file.string("general.name");
  m.hidden_size = integer("embedding_length");
  m.intermediate_size = integer("feed_forward_length");
  m.num_hidden_layers = integer("block_count");
  m.num_attention_heads = integer("attention.head_count");
  if (m.num_attention_heads <= 0)
    throw InputError(file.path().string() + ": " + key("attention.head_count") + " must be positive");
  m.num_key_value_heads = integer_or("attention.head_count_kv", m.num_attention_heads);
  m.head_dim = integer_or("attention.key_length", m.hidden_size / m.num_attention_heads);
  m.max_position_embeddings = integer("context_length");
  const GgufTensor& embedding = file.at("token_embd.weight");
  if (embedding.shape.size() != 2)
    throw InputError(file.path().string() + ": token_embd.weight must have 2 dimensions, but has " +
                     std::to_string(embedding.shape.size()));
  m.vocab_size = embedding.shape.front();
  m.tie_word_embeddings = file.find("output.weight") == nullptr;
  m.attention_bias = gpt2 || file.find("blk.0.attn_q.bias") != nullptr;
  m.attention_output_bias = gpt2 || file.find("blk.0.attn_output.bias") != nullptr;
  m.mlp_bias = gpt2 || file.find("blk.0.ffn_up.bias") != nullptr;
  if (gpt2) {
    m.norm = sim::Norm::layernorm;
    m.activation = sim::Activation::gelu;
    m.position = sim::Position::learned;
    m.norm_eps = file.number(key("attention.layer_norm_epsilon"));
    return m;
  }

  m.norm_eps = file.number(key("attention.layer_norm_rms_epsilon"));
  m.rope_theta = number_or("rope.freq_base", 10000);
  if (const std::int64_t rotated = integer_or("rope.dimension_count", m.head_dim); rotated != m.head_dim)
    throw InputError(file.path().string() + ": " + key("rope.dimension_count") + " is " +
                     std::to_string(rotated) + "; only whole heads (" + std::to_string(m.head_dim) +
                     ") are rotated here");
  if (file.find("rope_freqs.weight"))
    throw InputError(
        file.path().string() +
        ": rope_freqs.weight stretches the rotary frequencies one by one; open the Hugging Face folder of "
        "this model, whose config.json says how");
  if (file.has(key("rope.scaling.type")) && file.string(key("rope.scaling.type")) != "none") {
    if (file.string(key("rope.scaling.type")) != "linear")
      throw InputError(file.path().string() + ": " + key("rope.scaling.type") + " is " +
                       std::string(file.string(key("rope.scaling.type"))) + "; none and linear are accepted");
    m.rope_scaling.kind = sim::RopeScaling::Kind::linear;
    m.rope_scaling.factor = file.number(key("rope.scaling.factor"));
  }
  return m;
}

}  // namespace runtime
