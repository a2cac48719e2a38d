#include "sim/validate/row_model.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "sim/scenario/preset.h"
#include "sim/validate/table_words.h"

namespace sim {
namespace {

// GPT-2's 50257 words, padded to a multiple of 128 as Megatron-LM does; Llama's SentencePiece model has
// 32000.
constexpr std::int64_t kGptVocabulary = 50304, kLlamaVocabulary = 32000;
constexpr double kBillion = 1e9;

std::optional<Model> preset_of(const TableRow& row) {
  const std::string spelling = preset_spelling(row.text("model_name"));
  const std::vector<std::string> names = preset_names(PresetKind::model);
  const std::string known = resolve_alias(PresetKind::model, spelling);
  if (std::ranges::find(names, known) == names.end()) return std::nullopt;
  return load_model_preset(known);
}

// Whether the head is the embedding's transpose, by the published number of parameters. Without this number:
// Megatron-LM's and OpenAI's GPT models have it so, Llama's larger models do not.
bool ties_head(const Model& m, std::optional<double> published_billions) {
  if (!published_billions) return m.activation == Activation::gelu;
  Model tied = m, untied = m;
  tied.tie_word_embeddings = true;
  untied.tie_word_embeddings = false;
  const auto off = [&](const Model& shape) {
    return std::abs(static_cast<double>(count_parameters(shape).total) - *published_billions * kBillion);
  };
  return off(tied) <= off(untied);
}

}  // namespace

std::string preset_spelling(std::string_view model_name) {
  std::string spelled;
  for (const char c : lower(model_name)) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.')
      spelled += c;
    else if ((c == ' ' || c == '-' || c == '_') && !spelled.empty() && spelled.back() != '-')
      spelled += '-';
  }
  while (!spelled.empty() && spelled.back() == '-') spelled.pop_back();
  return spelled;
}

Model model_of_row(const TableRow& row) {
  const std::optional<Model> preset = preset_of(row);
  const auto layers = row.count_if_given("layers"), hidden = row.count_if_given("hidden"),
             heads = row.count_if_given("heads");
  if (!layers || !hidden || !heads) {
    if (preset) return *preset;
    throw CannotPredict("model \"" + std::string(row.text("model_name")) +
                        "\" is no preset, and its layers, hidden and heads are not all given");
  }
  // A preset of this shape knows more than the columns do.
  if (preset && preset->num_hidden_layers == *layers && preset->hidden_size == *hidden &&
      preset->num_attention_heads == *heads)
    return *preset;

  const std::string_view arch = row.text("arch");
  const bool llama =
      arch.empty() ? !meaning("gated_model", row.text("model_name")).empty() : meaning("arch", arch) != "gpt";
  Model m;
  m.name = std::string(row.text("model_name"));
  m.norm = llama ? Norm::rmsnorm : Norm::layernorm;
  m.activation = llama ? Activation::swiglu : Activation::gelu;
  m.position = llama ? Position::rope : Position::learned;
  m.num_hidden_layers = *layers;
  m.hidden_size = *hidden;
  m.num_attention_heads = *heads;
  m.num_key_value_heads = row.count_if_given("kv_heads").value_or(*heads);
  if (*hidden % *heads != 0) throw CannotPredict("heads does not divide hidden");
  m.head_dim = *hidden / *heads;
  m.intermediate_size =
      row.count_if_given("ffn_hidden").value_or(llama ? (8 * *hidden / 3 + 255) / 256 * 256 : 4 * *hidden);
  m.vocab_size = row.count_if_given("vocab").value_or(llama ? kLlamaVocabulary : kGptVocabulary);
  m.max_position_embeddings = row.count_if_given("seq_len").value_or(2048);
  // The columns' feed-forward width is then an expert's, and all layers have experts (Mixtral's shape).
  if (const auto experts = row.count_if_given("experts"); experts && *experts > 1) {
    if (!llama) throw CannotPredict("experts are of gated feed-forward networks only");
    m.moe.num_experts = *experts;
    m.moe.num_experts_per_tok = row.count_if_given("topk").value_or(2);
    m.moe.moe_intermediate_size = m.intermediate_size;
  }
  // GPT-2 and Megatron-LM's models have all biases.
  const bool biased = row.flag_if_given("biases").value_or(!llama);
  m.attention_bias = m.attention_output_bias = m.mlp_bias = biased;
  m.tie_word_embeddings = ties_head(m, row.number_if_given("params_b"));
  m.source = "columns of a table";
  return m;
}

}  // namespace sim
