#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "sim/scenario/hugging_face_reader.h"

namespace sim {
namespace {

Model read_gpt2(HuggingFaceConfig& config, std::string_view) {
  Model m;
  m.norm = Norm::layernorm;
  m.activation = Activation::gelu;
  m.position = Position::learned;
  m.hidden_size = config.factor("n_embd");
  m.num_hidden_layers = config.size("n_layer");
  m.num_attention_heads = m.num_key_value_heads = config.size("n_head");
  m.head_dim = heads_share(config, "n_embd", m.hidden_size, m.num_attention_heads);
  m.intermediate_size = config.size("n_inner", 4 * m.hidden_size);
  m.vocab_size = config.size("vocab_size");
  m.max_position_embeddings = config.size("n_positions");
  m.norm_eps = config.positive("layer_norm_epsilon");
  m.tie_word_embeddings = config.boolean("tie_word_embeddings", true);  // transformers' default for gpt2
  m.attention_bias = m.attention_output_bias = m.mlp_bias = true;

  // Both names are the tanh approximation; "gelu" alone is the exact error function.
  config.one_of("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.refuse_unless("scale_attn_weights", true, true);
  config.refuse_unless("scale_attn_by_inverse_layer_idx", false, false);
  config.refuse_unless("add_cross_attention", false, false);
  return m;
}

// Heads rotate in part only in models with layer norms, as GPT-NeoX; a Llama-like's heads rotate whole.
void read_partial_rotary(JsonObject& fields, Model& m) {
  if (!fields.has_value("partial_rotary_factor")) return;
  const double factor = fields.number("partial_rotary_factor");
  if (m.norm == Norm::layernorm && factor > 0 && factor <= 1)
    m.partial_rotary_factor = factor;
  else if (factor != 1)
    fields.fail("partial_rotary_factor", "must be 1: rotary embeddings turn whole heads here");
}

// rope_theta and rope_scaling beside each other (transformers 4), or both in rope_parameters (5).
void read_rope(HuggingFaceConfig& config, Model& m) {
  const auto read_scaling = [&m](JsonObject rope) {
    const std::string_view key = rope.has("rope_type") ? "rope_type" : "type";  // "type" before 4.43
    const std::string type = rope.text(key, "default");
    const auto kind = from_name<RopeScaling::Kind>(type);
    if (!kind)
      rope.fail(key, "must be one of default, linear, llama3, yarn, but is \"" + excerpt(type) + "\"");
    m.rope_scaling.kind = *kind;
    if (*kind != RopeScaling::Kind::none) m.rope_scaling.factor = rope.number("factor");
    if (*kind == RopeScaling::Kind::llama3) {
      m.rope_scaling.low_freq_factor = rope.number("low_freq_factor");
      m.rope_scaling.high_freq_factor = rope.number("high_freq_factor");
      m.rope_scaling.original_max_position_embeddings = rope.integer("original_max_position_embeddings");
    }
    if (*kind == RopeScaling::Kind::yarn) {
      m.rope_scaling.original_max_position_embeddings = rope.integer("original_max_position_embeddings");
      m.rope_scaling.beta_fast = rope.number("beta_fast", m.rope_scaling.beta_fast);
      m.rope_scaling.beta_slow = rope.number("beta_slow", m.rope_scaling.beta_slow);
      m.rope_scaling.truncate = rope.boolean("truncate", true);
      m.rope_scaling.attention_factor = rope.number("attention_factor", 0.0);
      for (const char* const absent : {"mscale", "mscale_all_dim"})
        if (rope.has_value(absent)) rope.fail(absent, "must be absent: attention_factor says it here");
    }
    read_partial_rotary(rope, m);
  };

  // Where rope_theta is missing it is 10000, transformers' default: Llama 2's first configs do not have it.
  if (config.has_value("rope_theta")) m.rope_theta = config.positive("rope_theta");
  if (config.has_value("rope_parameters")) {
    JsonObject parameters = config.object("rope_parameters");
    if (parameters.has("full_attention") && m.rope_local_base_freq > 0) {
      JsonObject window = parameters.object("sliding_attention");
      if (const std::string type = window.text("rope_type", "default"); type != "default")
        window.fail("rope_type", "must be default in layers with windows, but is \"" + excerpt(type) + "\"");
      m.rope_local_base_freq = window.number("rope_theta");
      if (!(m.rope_local_base_freq > 0)) window.fail("rope_theta", "must be a number above 0");
      JsonObject full = parameters.object("full_attention");
      m.rope_theta = full.number("rope_theta");
      if (!(m.rope_theta > 0)) full.fail("rope_theta", "must be a number above 0");
      return read_scaling(full);
    }
    if (parameters.has("full_attention") || parameters.has("sliding_attention"))
      config.fail("rope_parameters", "differs between kinds of layers, for which no plan is made");
    if (parameters.has_value("rope_theta")) m.rope_theta = parameters.number("rope_theta");
    if (!(m.rope_theta > 0)) parameters.fail("rope_theta", "must be a number above 0");
    read_scaling(parameters);
  } else if (config.has_value("rope_scaling")) {
    read_scaling(config.object("rope_scaling"));
  }
  read_partial_rotary(config, m);
}

// llama, mistral and qwen2: RMSNorm, SwiGLU, RoPE; they differ in where biases and windows are.
Model read_llama_like(HuggingFaceConfig& config, std::string_view family) {
  // transformers' defaults for a missing field are those of one size of the family: only Llama's is general.
  if (family != "llama" && !config.has("num_key_value_heads")) config.at("num_key_value_heads");
  Model m = read_sizes(config);
  config.one_of("hidden_act", {"silu"});
  if (family == "llama") {
    // transformers puts Llama's attention_bias on all four projections.
    m.attention_bias = m.attention_output_bias = config.boolean("attention_bias", false);
    m.mlp_bias = config.boolean("mlp_bias", false);
  } else if (family == "mistral") {
    read_window(config, m);
  } else {
    m.attention_bias = true;  // Qwen2 always has it on Q, K and V, and its config does not say
    const std::int64_t first_windowed = config.integer("max_window_layers", 0);
    if (config.boolean("use_sliding_window", false) && first_windowed < m.num_hidden_layers) {
      read_window(config, m);
      if (m.sliding_window > 0 && first_windowed > 0)
        config.fail("max_window_layers", "must be 0 or all layers: plans have windows by a pattern");
    }
  }
  return m;
}

constexpr std::array<HuggingFaceFamily, 4> kLlamaFamilies{{{"gpt2", read_gpt2},
                                                           {"llama", read_llama_like, true},
                                                           {"mistral", read_llama_like, true},
                                                           {"qwen2", read_llama_like, true}}};

}  // namespace

// A window at least as long as the longest sequence masks nothing.
void read_window(HuggingFaceConfig& config, Model& m) {
  if (config.has_value("sliding_window") && config.size("sliding_window") < m.max_position_embeddings)
    m.sliding_window = config.size("sliding_window");
}

std::int64_t heads_share(HuggingFaceConfig& config, std::string_view hidden_key, std::int64_t hidden,
                         std::int64_t heads) {
  if (hidden % heads != 0)
    config.fail(hidden_key, "is " + std::to_string(hidden) + ", which " + std::to_string(heads) +
                                " attention heads do not divide");
  return hidden / heads;
}

Model read_sizes(HuggingFaceConfig& config, std::string_view norm_eps, std::string_view head_dim) {
  Model m;
  m.hidden_size = config.size("hidden_size");
  m.intermediate_size = config.size("intermediate_size");
  m.num_hidden_layers = config.size("num_hidden_layers");
  m.num_attention_heads = config.size("num_attention_heads");
  m.num_key_value_heads = config.size("num_key_value_heads", m.num_attention_heads);
  m.vocab_size = config.size("vocab_size");
  m.max_position_embeddings = config.size("max_position_embeddings");
  m.tie_word_embeddings = config.boolean("tie_word_embeddings", false);
  if (config.has_value("rope_theta")) m.rope_theta = config.positive("rope_theta");
  m.norm_eps = config.positive(norm_eps);
  for (const std::string_view key : {std::string_view("head_dim"), head_dim})
    if (m.head_dim == 0 && config.has_value(key)) m.head_dim = config.size(key);
  if (m.head_dim == 0) m.head_dim = heads_share(config, "hidden_size", m.hidden_size, m.num_attention_heads);
  return m;
}

Model model_from_hugging_face_config(std::string_view json, const std::string& file) {
  Json parsed = parse_json(json, file);
  std::vector<HuggingFaceFamily> families(kLlamaFamilies.begin(), kLlamaFamilies.end());
  families.insert(families.end(), other_families().begin(), other_families().end());
  const auto family_with = [&](std::string_view suffix) {
    const bool says = parsed.is_object() && parsed.contains("model_type") && parsed["model_type"].is_string();
    const std::string name = says ? parsed["model_type"].get<std::string>().append(suffix) : "";
    return std::ranges::find(families, name, &HuggingFaceFamily::name);
  };
  // For a model that also sees, reads the part that speaks.
  if (family_with("_text") != families.end() && parsed.contains("text_config"))
    parsed = Json(parsed["text_config"]);
  const auto found = family_with("");
  if (found != families.end() && !found->defaults.empty()) {
    const Json defaults = Json::parse(found->defaults);
    for (const auto& [key, value] : defaults.items())
      if (!parsed.contains(key)) parsed[key] = value;
  }
  HuggingFaceConfig config(parsed, file);
  const std::string family = config.text("model_type");
  if (found == families.end()) {
    std::vector<std::string_view> names;
    for (const HuggingFaceFamily& one : families) names.push_back(one.name);
    config.fail("model_type", "must be " + listed(names) + ", but is \"" + excerpt(family) + "\"");
  }
  Model m = found->read(config, family);
  if (found->rotates) read_rope(config, m);
  if (m.num_attention_heads % m.num_key_value_heads != 0)
    config.fail("num_key_value_heads", "is " + std::to_string(m.num_key_value_heads) +
                                           ", which does not divide num_attention_heads, " +
                                           std::to_string(m.num_attention_heads));
  const bool quantised_elsewhere = family == "deepseek_v3" || family == "gpt_oss";  // published no other way
  if (config.has_value("quantization_config") && !quantised_elsewhere)
    config.fail("quantization_config", "must be absent: quantised weights are read from GGUF files only");

  // Models are known by the folder that their config.json lies in.
  const std::filesystem::path path(file);
  const std::string directory = path.parent_path().filename().string();
  m.name = directory.empty() ? path.stem().string() : directory;
  m.source = file;
  return m;
}

}  // namespace sim
