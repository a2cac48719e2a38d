// A decoder-only transformer by its shape. Field names are Hugging Face's config.json.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/units.h"

namespace sim {

enum class Norm { layernorm, rmsnorm };
enum class Activation { gelu, swiglu };
enum class Position { learned, rope };
std::string_view name(Norm norm);
std::string_view name(Activation activation);
std::string_view name(Position position);
std::optional<Norm> norm_from_name(std::string_view text);
std::optional<Activation> activation_from_name(std::string_view text);
std::optional<Position> position_from_name(std::string_view text);

// Stretching of RoPE's base frequencies; the numbers are config.json's rope_scaling / rope_parameters.
struct RopeScaling {
  enum class Kind { none, linear, llama3 } kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 8192;
  bool operator==(const RopeScaling&) const = default;
};
std::string_view name(RopeScaling::Kind kind);  // rope_type: "default" is Kind::none
std::optional<RopeScaling::Kind> rope_scaling_from_name(std::string_view text);

struct Model {
  std::string name;
  Norm norm = Norm::rmsnorm;
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
  RopeScaling rope_scaling;
  std::string source;  // where the shape comes from

  bool operator==(const Model&) const = default;

  std::int64_t query_size() const { return num_attention_heads * head_dim; }
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }
  std::int64_t qkv_size() const { return query_size() + 2 * key_value_size(); }
  // Rows of the first feed-forward projection: gate and up together for SwiGLU.
  std::int64_t mlp_up_size() const {
    return activation == Activation::swiglu ? 2 * intermediate_size : intermediate_size;
  }
};

// Number of parameters, counted tensor by tensor; for sizes in which validate() (scenario.h) finds no
// problem.
struct ParameterCount {
  std::int64_t embedding = 0;  // tokens and learned positions
  std::int64_t attention_per_layer = 0;
  std::int64_t mlp_per_layer = 0;
  std::int64_t norms_per_layer = 0;
  std::int64_t final_norm = 0;
  std::int64_t head = 0;  // 0 where it is tied to the embedding
  std::int64_t total = 0;
};
ParameterCount count_parameters(const Model& model);

// A Hugging Face config.json (families gpt2, llama, mistral, qwen2; transformers 4 and 5 write RoPE
// differently, both are read). Throws PresetError (scenario/preset.h) that names file and field.
Model model_from_hugging_face_config(std::string_view json, const std::string& file);

}  // namespace sim
