#include "sim/scenario/model.h"

#include "sim/enum_names.h"

namespace sim {
namespace {

constexpr std::array<EnumName<Norm>, 2> kNorms{{{Norm::layernorm, "layernorm"}, {Norm::rmsnorm, "rmsnorm"}}};
constexpr std::array<EnumName<Activation>, 2> kActivations{
    {{Activation::gelu, "gelu"}, {Activation::swiglu, "swiglu"}}};
constexpr std::array<EnumName<Position>, 2> kPositions{
    {{Position::learned, "learned"}, {Position::rope, "rope"}}};
constexpr std::array<EnumName<RopeScaling::Kind>, 3> kRopeScalings{{{RopeScaling::Kind::none, "default"},
                                                                    {RopeScaling::Kind::linear, "linear"},
                                                                    {RopeScaling::Kind::llama3, "llama3"}}};

}  // namespace

std::string_view name(Norm norm) {
  return name_in(kNorms, norm);
}
std::string_view name(Activation activation) {
  return name_in(kActivations, activation);
}
std::string_view name(Position position) {
  return name_in(kPositions, position);
}
std::string_view name(RopeScaling::Kind kind) {
  return name_in(kRopeScalings, kind);
}
std::optional<Norm> norm_from_name(std::string_view text) {
  return value_in(kNorms, text);
}
std::optional<Activation> activation_from_name(std::string_view text) {
  return value_in(kActivations, text);
}
std::optional<Position> position_from_name(std::string_view text) {
  return value_in(kPositions, text);
}
std::optional<RopeScaling::Kind> rope_scaling_from_name(std::string_view text) {
  return value_in(kRopeScalings, text);
}

ParameterCount count_parameters(const Model& m) {
  const std::int64_t h = m.hidden_size, f = m.intermediate_size;
  const std::int64_t norm = m.norm == Norm::layernorm ? 2 * h : h;  // weight, and LayerNorm's bias

  ParameterCount n;
  n.embedding = m.vocab_size * h;
  if (m.position == Position::learned) n.embedding += m.max_position_embeddings * h;

  n.attention_per_layer = m.qkv_size() * h + h * m.query_size();
  if (m.attention_bias) n.attention_per_layer += m.qkv_size();
  if (m.attention_output_bias) n.attention_per_layer += h;

  n.mlp_per_layer = m.mlp_up_size() * h + h * f;
  if (m.mlp_bias) n.mlp_per_layer += m.mlp_up_size() + h;

  n.norms_per_layer = 2 * norm;
  n.final_norm = norm;
  n.head = m.tie_word_embeddings ? 0 : m.vocab_size * h;
  n.total = n.embedding +
            m.num_hidden_layers * (n.attention_per_layer + n.mlp_per_layer + n.norms_per_layer) +
            n.final_norm + n.head;
  return n;
}

}  // namespace sim
