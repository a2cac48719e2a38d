#include "runtime/weights.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "runtime/gguf_weights.h"
#include "sim/plan/parameters.h"

namespace runtime {
namespace {

using sim::Model;

// A linear layer or norm of a decoder layer: the plan's name, and its names in two conventions.
struct LayerName {
  std::string_view plan, llama, gpt2;
};
constexpr LayerName kLayerNames[] = {
    {"layer.attention_norm", "input_layernorm", "ln_1"},
    {"layer.attention.output", "self_attn.o_proj", "attn.c_proj"},
    {"layer.mlp_norm", "post_attention_layernorm", "ln_2"},
    {"layer.mlp.up", "mlp.up_proj", "mlp.c_fc"},
    {"layer.mlp.down", "mlp.down_proj", "mlp.c_proj"},
};

// OPT's layers have other activations.
bool is_gpt2(const Model& model) {
  return model.position == sim::Position::learned && model.activation == sim::Activation::gelu;
}

// Nemotron-H: every layer is "mixer" behind "norm".
constexpr LayerName kHybridNames[] = {
    {"layer.attention_norm", "norm", ""},          {"layer.mlp_norm", "norm", ""},
    {"layer.state_space_norm", "norm", ""},        {"layer.attention.output", "mixer.o_proj", ""},
    {"layer.mlp.up", "mixer.up_proj", ""},         {"layer.mlp.down", "mixer.down_proj", ""},
    {"layer.state_space.in", "mixer.in_proj", ""}, {"layer.state_space.out", "mixer.out_proj", ""},
};

// Families with names of their own; Llama-like names are written out below. A layer's names follow `layers`
// and the layer's number. Weights are stored (out, in). An empty name: the family has none.
struct FamilyNames {
  std::string_view layers, embedding, position, embedding_norm, final_norm, head;
  std::string_view attention_norm, mlp_norm, qkv, query, key, value, output, up, down;
};
constexpr FamilyNames kBloomNames{.layers = "h.",
                                  .embedding = "word_embeddings",
                                  .position = "",
                                  .embedding_norm = "word_embeddings_layernorm",
                                  .final_norm = "ln_f",
                                  .head = "lm_head",
                                  .attention_norm = "input_layernorm",
                                  .mlp_norm = "post_attention_layernorm",
                                  .qkv = "self_attention.query_key_value",
                                  .query = "",
                                  .key = "",
                                  .value = "",
                                  .output = "self_attention.dense",
                                  .up = "mlp.dense_h_to_4h",
                                  .down = "mlp.dense_4h_to_h"};
constexpr FamilyNames kFalconOfTwoNorms = [] {
  FamilyNames names = kBloomNames;
  names.attention_norm = "ln_attn";
  names.mlp_norm = "ln_mlp";
  return names;
}();
constexpr FamilyNames kGptNeoxNames = [] {
  FamilyNames names = kBloomNames;
  names.layers = "gpt_neox.layers.";
  names.embedding = "gpt_neox.embed_in";
  names.final_norm = "gpt_neox.final_layer_norm";
  names.head = "embed_out";
  names.qkv = "attention.query_key_value";
  names.output = "attention.dense";
  return names;
}();
constexpr FamilyNames kMptNames{.layers = "blocks.",
                                .embedding = "wte",
                                .position = "",
                                .embedding_norm = "",
                                .final_norm = "norm_f",
                                .head = "lm_head",
                                .attention_norm = "norm_1",
                                .mlp_norm = "norm_2",
                                .qkv = "attn.Wqkv",
                                .query = "",
                                .key = "",
                                .value = "",
                                .output = "attn.out_proj",
                                .up = "ffn.up_proj",
                                .down = "ffn.down_proj"};
constexpr FamilyNames kOptNames{.layers = "model.decoder.layers.",
                                .embedding = "model.decoder.embed_tokens",
                                .position = "model.decoder.embed_positions",
                                .embedding_norm = "",
                                .final_norm = "model.decoder.final_layer_norm",
                                .head = "lm_head",
                                .attention_norm = "self_attn_layer_norm",
                                .mlp_norm = "final_layer_norm",
                                .qkv = "",
                                .query = "self_attn.q_proj",
                                .key = "self_attn.k_proj",
                                .value = "self_attn.v_proj",
                                .output = "self_attn.out_proj",
                                .up = "fc1",
                                .down = "fc2"};

// Null where names are GPT-2's, Nemotron-H's or Llama's.
const FamilyNames* family_names(const Model& model) {
  if (model.is_hybrid() || model.norm != sim::Norm::layernorm) return nullptr;
  switch (model.position) {
    case sim::Position::learned:
      return is_gpt2(model) ? nullptr : &kOptNames;
    case sim::Position::alibi:
      return model.norm_has_bias() ? &kBloomNames : &kMptNames;
    case sim::Position::rope:
      if (sim::is_gated(model.activation)) return nullptr;
      if (model.attention_bias) return &kGptNeoxNames;
      return model.parallel_residual && !model.shared_norm ? &kFalconOfTwoNorms : &kBloomNames;
    case sim::Position::none:
      return nullptr;
  }
  return nullptr;
}

bool is_llama4(const Model& model) {
  return model.moe.weights_on == sim::ExpertWeights::input;
}
bool is_gpt_oss(const Model& model) {
  return model.activation == sim::Activation::clamped_swiglu;
}

// Mixtral numbers the three matrices of an expert; Qwen and DeepSeek name them as in a dense layer.
bool is_mixtral(const Model& model) {
  return !model.has_latent_attention() && model.qk_norm == sim::QkNorm::none && !model.moe.shared_expert_gate;
}

class Namer {
 public:
  Namer(const Model& model, std::string_view buffer_name, std::int32_t layer)
      : model_(model), buffer_(buffer_name), family_(family_names(model)) {
    if (buffer_ == "layer.state_space.heads" && model.is_hybrid()) {
      owner_ = buffer_;
      layer_prefix_ = "backbone.layers." + std::to_string(layer) + ".";
      return;
    }
    if (buffer_ == "layer.attention.sinks") {
      owner_ = buffer_;
      layer_prefix_ = "model.layers." + std::to_string(layer) + ".";
      return;
    }
    const std::size_t dot = buffer_.rfind('.');
    if (dot == std::string_view::npos) unknown();
    owner_ = buffer_.substr(0, dot);
    kind_ = buffer_.substr(dot);
    if (kind_ != ".weight" && kind_ != ".bias") unknown();
    const std::string index = std::to_string(layer);
    layer_prefix_ = family_ ? std::string(family_->layers) + index + "."
                    : is_gpt2(model)
                        ? "h." + index + "."
                        : (model.is_hybrid() ? "backbone.layers." : "model.layers.") + index + ".";
  }

  std::vector<WeightPart> parts() const {
    if (model_.is_hybrid()) return hybrid_parts();
    if (family_) return family_parts();
    if (owner_ == "layer.attention.sinks")
      return {{.tensor = layer_prefix_ + "self_attn.sinks", .rows = model_.num_attention_heads}};
    if (owner_.starts_with("layer.router") || owner_.starts_with("layer.experts") ||
        owner_.starts_with("layer.shared_expert"))
      return expert_parts();
    if (owner_ == "layer.attention.qk_norm") return qk_norm();
    if (model_.has_latent_attention() && owner_.starts_with("layer.attention.")) return latent_parts();
    if (owner_ == "embedding")
      return {table(is_gpt2(model_) ? "wte" : "model.embed_tokens", model_.vocab_size)};
    if (owner_ == "position_embedding") return {table("wpe", model_.max_position_embeddings)};
    if (owner_ == "head") return {table("lm_head", model_.vocab_size)};
    if (owner_ == "final_norm") return {vector(is_gpt2(model_) ? "ln_f" : "model.norm")};
    if (owner_ == "layer.attention.qkv") return qkv();
    if (owner_ == "layer.mlp.gate_up") return gate_up();
    if (owner_ == "layer.attention_output_norm") return {vector(layer_prefix_ + "post_attention_layernorm")};
    if (owner_ == "layer.mlp_output_norm") return {vector(layer_prefix_ + "post_feedforward_layernorm")};
    if (owner_ == "layer.mlp_norm" && model_.norms_after())
      return {vector(layer_prefix_ + "pre_feedforward_layernorm")};
    if (owner_ == "layer.mlp.down" && is_llama4(model_))
      return {linear(layer_prefix_ + "feed_forward.down_proj", model_.hidden_size, model_.intermediate_size)};
    for (const LayerName& name : kLayerNames) {
      if (name.plan != owner_) continue;
      const std::string file_name = layer_prefix_ + std::string(is_gpt2(model_) ? name.gpt2 : name.llama);
      if (owner_.ends_with("norm")) return {vector(file_name)};
      if (owner_ == "layer.attention.output")
        return {linear(file_name, model_.hidden_size, model_.query_size())};
      if (owner_ == "layer.mlp.up") return {linear(file_name, model_.intermediate_size, model_.hidden_size)};
      return {linear(file_name, model_.hidden_size, model_.intermediate_size)};
    }
    unknown();
  }

 private:
  [[noreturn]] void unknown() const {
    throw std::invalid_argument("no file format names a parameter " + std::string(buffer_));
  }

  WeightPart vector(std::string_view owner) const {
    return gain({.tensor = std::string(owner) + std::string(kind_), .rows = model_.hidden_size});
  }
  WeightPart gain(WeightPart part) const {
    if (model_.norm_gains_from_one) part.offset = 1;
    return part;
  }
  WeightPart table(std::string_view owner, std::int64_t rows) const {
    return {.tensor = std::string(owner) + std::string(kind_), .rows = rows, .cols = model_.hidden_size};
  }
  // Rows (out, in) of a weight, or a bias (out).
  WeightPart linear(const std::string& owner, std::int64_t out, std::int64_t in) const {
    const bool matrix = kind_ == ".weight";
    return {.tensor = owner + std::string(kind_),
            .rows = out,
            .cols = matrix ? in : 0,
            .transposed = matrix && is_gpt2(model_)};  // Conv1D
  }

  std::vector<WeightPart> hybrid_parts() const {
    const sim::StateSpace& s = model_.state_space;
    const auto vector_of = [&](const std::string& name, std::int64_t n) {
      return WeightPart{.tensor = layer_prefix_ + "mixer." + name, .rows = n};
    };
    if (owner_ == "embedding") return {table("backbone.embeddings", model_.vocab_size)};
    if (owner_ == "head") return {table("lm_head", model_.vocab_size)};
    if (owner_ == "final_norm") return {vector("backbone.norm_f")};
    if (owner_ == "layer.state_space.heads")
      return {vector_of("dt_bias", s.mamba_num_heads), vector_of("A_log", s.mamba_num_heads),
              vector_of("D", s.mamba_num_heads)};
    if (owner_ == "layer.state_space.norm") return {vector_of("norm.weight", s.inner_size())};
    if (owner_ == "layer.state_space.conv") {
      WeightPart conv = linear(layer_prefix_ + "mixer.conv1d", s.conv_size(), s.conv_kernel);
      conv.of_channels = conv.cols > 0;
      return {conv};
    }
    if (owner_ == "layer.attention.qkv")
      return {linear(layer_prefix_ + "mixer.q_proj", model_.query_size(), model_.hidden_size),
              linear(layer_prefix_ + "mixer.k_proj", model_.key_value_size(), model_.hidden_size),
              linear(layer_prefix_ + "mixer.v_proj", model_.key_value_size(), model_.hidden_size)};
    for (const LayerName& name : kHybridNames) {
      if (name.plan != owner_) continue;
      const std::string file_name = layer_prefix_ + std::string(name.llama);
      if (owner_.ends_with("norm")) return {vector(file_name)};
      if (owner_ == "layer.state_space.in")
        return {linear(file_name, s.projection_size(), model_.hidden_size)};
      if (owner_ == "layer.mlp.up") return {linear(file_name, model_.intermediate_size, model_.hidden_size)};
      const std::int64_t from = owner_ == "layer.state_space.out" ? s.inner_size()
                                : owner_ == "layer.mlp.down"      ? model_.intermediate_size
                                                                  : model_.query_size();
      return {linear(file_name, model_.hidden_size, from)};
    }
    unknown();
  }

  std::vector<WeightPart> family_parts() const {
    const FamilyNames& names = *family_;
    const std::int64_t hidden = model_.hidden_size, ffn = model_.intermediate_size;
    const auto of_layer = [&](std::string_view name) { return layer_prefix_ + std::string(name); };
    if (owner_ == "embedding") return {table(names.embedding, model_.vocab_size)};
    if (owner_ == "embedding_norm") return {vector(names.embedding_norm)};
    if (owner_ == "head") return {table(names.head, model_.vocab_size)};
    if (owner_ == "final_norm") return {vector(names.final_norm)};
    if (owner_ == "position_embedding") {
      WeightPart positions = table(names.position, model_.max_position_embeddings);
      positions.first_row = 2;  // transformers' OPT looks positions up two rows further
      return {positions};
    }
    if (owner_ == "layer.attention_norm") return {vector(of_layer(names.attention_norm))};
    if (owner_ == "layer.mlp_norm") return {vector(of_layer(names.mlp_norm))};
    if (owner_ == "layer.attention.output")
      return {linear(of_layer(names.output), hidden, model_.query_size())};
    if (owner_ == "layer.mlp.up") return {linear(of_layer(names.up), ffn, hidden)};
    if (owner_ == "layer.mlp.down") return {linear(of_layer(names.down), hidden, ffn)};
    if (owner_ != "layer.attention.qkv") unknown();
    if (names.qkv.empty())
      return {linear(of_layer(names.query), model_.query_size(), hidden),
              linear(of_layer(names.key), model_.key_value_size(), hidden),
              linear(of_layer(names.value), model_.key_value_size(), hidden)};
    WeightPart fused = linear(of_layer(names.qkv), model_.qkv_size(), hidden);
    if (family_ != &kMptNames) {
      fused.fused_groups = model_.num_key_value_heads;
      fused.fused_queries = model_.num_attention_heads / model_.num_key_value_heads;
    }
    if (model_.position == sim::Position::rope && model_.rotated_size() < model_.head_dim) {
      fused.partly_rotated = model_.rotated_size();
      fused.head_rows = model_.head_dim;
      fused.rotating_heads = model_.num_attention_heads + model_.num_key_value_heads;
    }
    return {fused};
  }

  // Experts follow each other, each with its gate before what the gate multiplies.
  std::vector<WeightPart> expert_parts() const {
    const sim::MixtureOfExperts& e = model_.moe;
    const std::string block = layer_prefix_ + (is_llama4(model_)    ? "feed_forward."
                                               : is_gpt_oss(model_) ? "mlp."
                                               : is_mixtral(model_) ? "block_sparse_moe."
                                                                    : "mlp.");
    const std::int64_t hidden = model_.hidden_size;
    if (is_llama4(model_) || is_gpt_oss(model_)) {
      if (owner_ == "layer.router") return {linear(block + "router", e.num_experts, hidden)};
      const bool up = owner_ == "layer.experts.gate_up";
      if (up || owner_ == "layer.experts.down") {
        const std::int64_t width = e.moe_intermediate_size, rows = up ? 2 * width : hidden;
        const bool matrix = kind_ == ".weight";
        return {{.tensor = block + "experts." + (up ? "gate_up_proj" : "down_proj") + (matrix ? "" : "_bias"),
                 .rows = e.num_experts * rows,
                 .cols = matrix ? (up ? hidden : width) : 0,
                 .experts = e.num_experts,
                 .alternating = up && is_gpt_oss(model_)}};
      }
    }
    const auto gate_and_up = [&](std::vector<WeightPart>& parts, const std::string& owner, const char* gate,
                                 const char* up, std::int64_t width) {
      parts.push_back(linear(owner + gate, width, hidden));
      parts.push_back(linear(owner + up, width, hidden));
    };
    std::vector<WeightPart> parts;
    const std::string shared = block + (model_.has_latent_attention() ? "shared_experts." : "shared_expert.");
    if (owner_ == "layer.router" && kind_ == ".bias" && model_.has_latent_attention())
      return {{.tensor = block + "gate.e_score_correction_bias", .rows = e.num_experts}};
    if (owner_ == "layer.router") return {linear(block + "gate", e.num_experts, hidden)};
    if (owner_ == "layer.shared_expert.gate") return {linear(block + "shared_expert_gate", 1, hidden)};
    if (owner_ == "layer.shared_expert.gate_up") {
      gate_and_up(parts, shared, "gate_proj", "up_proj", e.shared_expert_intermediate_size);
      return parts;
    }
    if (owner_ == "layer.shared_expert.down")
      return {linear(shared + "down_proj", hidden, e.shared_expert_intermediate_size)};
    for (std::int64_t i = 0; i < e.num_experts; ++i) {
      const std::string expert = block + "experts." + std::to_string(i) + ".";
      if (owner_ == "layer.experts.gate_up" && is_mixtral(model_))
        gate_and_up(parts, expert, "w1", "w3", e.moe_intermediate_size);
      else if (owner_ == "layer.experts.gate_up")
        gate_and_up(parts, expert, "gate_proj", "up_proj", e.moe_intermediate_size);
      else if (owner_ == "layer.experts.down")
        parts.push_back(
            linear(expert + (is_mixtral(model_) ? "w2" : "down_proj"), hidden, e.moe_intermediate_size));
      else
        unknown();
    }
    return parts;
  }

  // The parts of DeepSeek's attention, whose rotary embeddings rotate neighbouring elements.
  std::vector<WeightPart> latent_parts() const {
    const sim::LatentAttention& a = model_.latent;
    const std::string block = layer_prefix_ + "self_attn.";
    const std::string_view name = owner_.substr(std::string_view("layer.attention.").size());
    const auto rotated = [&](const std::string& file_name, std::int64_t heads, std::int64_t rows,
                             std::int64_t columns) {
      WeightPart part = linear(block + file_name, rows, columns);
      part.interleaved_heads = heads;
      part.rotary_rows = a.qk_rope_head_dim;
      return std::vector{part};
    };
    const auto gain = [&](const std::string& file_name, std::int64_t rank) {
      return std::vector{WeightPart{.tensor = block + file_name + ".weight", .rows = rank}};
    };
    if (name == "q_down") return {linear(block + "q_a_proj", a.q_lora_rank, model_.hidden_size)};
    if (name == "q_norm") return gain("q_a_layernorm", a.q_lora_rank);
    if (name == "q_up")
      return a.q_lora_rank > 0
                 ? rotated("q_b_proj", model_.num_attention_heads, model_.query_size(), a.q_lora_rank)
                 : rotated("q_proj", model_.num_attention_heads, model_.query_size(), model_.hidden_size);
    if (name == "kv_down")
      return rotated("kv_a_proj_with_mqa", 1, a.kv_lora_rank + a.qk_rope_head_dim, model_.hidden_size);
    if (name == "kv_norm") return gain("kv_a_layernorm", a.kv_lora_rank);
    if (name == "kv_up")
      return {linear(block + "kv_b_proj", model_.num_attention_heads * (a.qk_nope_head_dim + a.v_head_dim),
                     a.kv_lora_rank)};
    if (name == "output") return {linear(block + "o_proj", model_.hidden_size, model_.value_size())};
    unknown();
  }

  // One gain for all heads of queries and one for those of keys, or for each as wide as all its heads.
  std::vector<WeightPart> qk_norm() const {
    const bool each = model_.qk_norm == sim::QkNorm::per_head;
    const auto part = [&](const char* name, std::int64_t all) {
      return gain(
          {.tensor = layer_prefix_ + "self_attn." + name + ".weight", .rows = each ? model_.head_dim : all});
    };
    return {part("q_norm", model_.query_size()), part("k_norm", model_.key_value_size())};
  }

  std::vector<WeightPart> qkv() const {
    if (is_gpt2(model_))
      return {linear(layer_prefix_ + "attn.c_attn", model_.qkv_size(), model_.hidden_size)};
    const auto part = [&](const char* name, std::int64_t rows) {
      return linear(layer_prefix_ + name, rows, model_.hidden_size);
    };
    std::vector<WeightPart> parts{part("self_attn.q_proj", model_.query_size()),
                                  part("self_attn.k_proj", model_.key_value_size()),
                                  part("self_attn.v_proj", model_.key_value_size())};
    if (is_llama4(model_)) {
      parts[0].interleaved_heads = model_.num_attention_heads;
      parts[1].interleaved_heads = model_.num_key_value_heads;
    }
    return parts;
  }

  std::vector<WeightPart> gate_up() const {
    const auto part = [&](const char* name) {
      return linear(layer_prefix_ + name, model_.intermediate_size, model_.hidden_size);
    };
    if (is_llama4(model_)) return {part("feed_forward.gate_proj"), part("feed_forward.up_proj")};
    return {part("mlp.gate_proj"), part("mlp.up_proj")};
  }

  const Model& model_;
  std::string_view buffer_;
  const FamilyNames* family_;
  std::string_view owner_, kind_;
  std::string layer_prefix_;
};

// Visits (index in the parameter's rows, index in the file) of every element of a part.
template <typename Visit>
void for_each_element(const WeightPart& part, const Visit& visit) {
  const std::int64_t cols = std::max<std::int64_t>(part.cols, 1);
  for (std::int64_t row = 0; row < part.rows; ++row) {
    const std::int64_t file_row = part.file_row(row);
    for (std::int64_t col = 0; col < cols; ++col)
      visit(static_cast<std::size_t>(row * cols + col),
            static_cast<std::size_t>(part.experts > 0      ? part.place_among_experts(row, col)
                                     : part.transposed     ? col * part.rows + file_row
                                     : part.swapped_halves ? file_row * cols + (col + cols / 2) % cols
                                                           : file_row * cols + col));
  }
}

// A module of multi-token prediction: a layer with four parameters of its own.
std::vector<WeightPart> parts_of_module(const Model& model, std::string_view name, std::int32_t layer) {
  if (name.starts_with("layer.")) return Namer(model, name, layer).parts();
  const std::string block = "model.layers." + std::to_string(layer) + ".";
  const std::size_t dot = name.rfind('.');
  const std::string_view owner = name.substr(0, dot);
  // In this projection the embedding comes first.
  if (owner == "projection")
    return {{.tensor = block + "eh_proj.weight",
             .rows = model.hidden_size,
             .cols = 2 * model.hidden_size,
             .swapped_halves = true}};
  const std::string_view norm = owner == "hidden_norm"      ? "hnorm"
                                : owner == "embedding_norm" ? "enorm"
                                                            : "shared_head.norm";
  return {{.tensor = block + std::string(norm) + std::string(name.substr(dot)), .rows = model.hidden_size}};
}

}  // namespace

std::vector<std::int64_t> WeightPart::file_shape() const {
  if (experts > 0)
    return cols == 0 ? std::vector<std::int64_t>{experts, rows / experts}
                     : std::vector<std::int64_t>{experts, cols, rows / experts};
  if (groups > 0)
    return cols == 0 ? std::vector<std::int64_t>{groups, rows / groups}
                     : std::vector<std::int64_t>{groups, rows / groups, cols};
  if (cols == 0) return {rows};
  if (of_channels) return {rows, 1, cols};
  return transposed ? std::vector<std::int64_t>{cols, rows} : std::vector<std::int64_t>{rows, cols};
}

std::int64_t WeightPart::place_among_experts(std::int64_t row, std::int64_t col) const {
  const std::int64_t of_one = rows / experts, expert = row / of_one, within = row % of_one;
  const std::int64_t there = alternating ? 2 * (within % (of_one / 2)) + within / (of_one / 2) : within;
  return (expert * std::max<std::int64_t>(cols, 1) + col) * of_one + there;
}

std::int64_t WeightPart::file_row(std::int64_t row) const {
  if (first_row > 0) return (row + first_row) % rows;
  if (partly_rotated > 0 && row / head_rows < rotating_heads) {
    const std::int64_t half = head_rows / 2, turned = partly_rotated / 2, within = row % head_rows;
    const std::int64_t which = within / half, i = within % half;
    row += (i < turned ? which * turned + i : partly_rotated + which * (half - turned) + i - turned) - within;
  }
  if (fused_groups > 0) {  // a group: fused_queries heads of queries, one of keys, one of values
    const std::int64_t of_group = fused_queries + 2, size = rows / (of_group * fused_groups);
    const std::int64_t head = row / size, queries = fused_groups * fused_queries;
    const std::int64_t group = head < queries ? head / fused_queries : (head - queries) % fused_groups;
    const std::int64_t place =
        head < queries ? head % fused_queries : fused_queries + (head - queries) / fused_groups;
    return (group * of_group + place) * size + row % size;
  }
  if (interleaved_heads == 0) return row;
  const std::int64_t head_dim = rows / interleaved_heads, rotary = rotary_rows > 0 ? rotary_rows : head_dim;
  const std::int64_t first = row / head_dim * head_dim + head_dim - rotary, within = row - first;
  if (within < 0) return row;
  // Dimension half * rotary/2 + i lies at 2 i + half.
  return first + 2 * (within % (rotary / 2)) + within / (rotary / 2);
}

std::vector<WeightPart> weight_parts(const Model& model, WeightNames names, std::string_view buffer_name,
                                     std::int32_t layer) {
  if (names != WeightNames::hugging_face)
    return gguf_weight_parts(model, names == WeightNames::gguf_interleaved, buffer_name, layer);
  for (std::int64_t module = 0; module < model.num_nextn_predict_layers; ++module)
    if (const std::string prefix = sim::module_prefix(static_cast<std::size_t>(module));
        buffer_name.starts_with(prefix))
      return parts_of_module(model, buffer_name.substr(prefix.size()),
                             static_cast<std::int32_t>(model.num_hidden_layers + module));
  return Namer(model, buffer_name, layer).parts();
}

std::optional<WeightPart> adapter_part(std::string_view buffer_name, std::int32_t layer, std::int64_t rows,
                                       std::int64_t cols) {
  struct Module {
    std::string_view plan, peft;
  };
  static constexpr Module kModules[] = {
      {".query_adapter", "self_attn.q_proj"}, {".key_adapter", "self_attn.k_proj"},
      {".value_adapter", "self_attn.v_proj"}, {".output_adapter", "self_attn.o_proj"},
      {".gate_adapter", "mlp.gate_proj"},     {".up_adapter", "mlp.up_proj"},
      {".down_adapter", "mlp.down_proj"}};
  for (const Module& module : kModules)
    for (const auto& [factor, name] :
         {std::pair{"_down.weight", ".lora_A.weight"}, {"_up.weight", ".lora_B.weight"}})
      if (buffer_name.ends_with(std::string(module.plan) + factor))
        return WeightPart{
            .tensor = "model.layers." + std::to_string(layer) + "." + std::string(module.peft) + name,
            .rows = rows,
            .cols = cols};
  return std::nullopt;
}

std::vector<RowPlace> row_places(std::span<const WeightPart> parts) {
  std::vector<RowPlace> places;
  std::int64_t first = 0;
  for (std::size_t p = 0; p < parts.size();) {
    std::size_t end = p + 1;
    while (parts[p].groups > 0 && end < parts.size() && parts[end].groups == parts[p].groups) ++end;
    std::int64_t all = 0, before = 0;
    for (const WeightPart& part : parts.subspan(p, end - p)) all += part.rows;
    for (; p < end; ++p) {
      const std::int64_t groups = parts[p].groups;
      if (groups == 0) {
        places.push_back({first});
        continue;
      }
      places.push_back({first + before, parts[p].rows / groups, all / groups});
      before += parts[p].rows / groups;
    }
    first += all;
  }
  return places;
}

void assemble(std::span<const WeightPart> parts, const ReadTensor& read, std::span<float> out) {
  std::int64_t elements = 0;
  for (const WeightPart& part : parts) elements += part.elements();
  if (elements != std::ssize(out)) throw std::invalid_argument("the parts of a parameter do not fill it");
  const std::vector<RowPlace> places = row_places(parts);
  std::vector<float> in_file, rows;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const WeightPart& part = parts[p];
    const auto size = static_cast<std::size_t>(part.elements());
    const auto cols = static_cast<std::size_t>(std::max<std::int64_t>(part.cols, 1));
    const bool apart = places[p].share != places[p].group;
    if (apart) rows.resize(size);
    const std::span<float> here =
        apart ? std::span(rows) : out.subspan(static_cast<std::size_t>(places[p].first) * cols, size);
    if (part.lies_otherwise()) {
      in_file.resize(size);
      read(part, in_file);
      for_each_element(part,
                       [&](std::size_t to, std::size_t from) { here[to] = in_file[from] + part.offset; });
    } else {
      read(part, here);
    }
    if (!apart) continue;
    for (std::int64_t row = 0; row < part.rows; ++row)
      std::ranges::copy(here.subspan(static_cast<std::size_t>(row) * cols, cols),
                        out.begin() + places[p].of(row) * std::max<std::int64_t>(part.cols, 1));
  }
}

std::vector<float> file_order(const WeightPart& part, std::span<const float> rows) {
  std::vector<float> in_file(rows.size());
  for_each_element(part,
                   [&](std::size_t here, std::size_t there) { in_file[there] = rows[here] - part.offset; });
  return in_file;
}

}  // namespace runtime
