#include "runtime/gguf_weights.h"

#include <stdexcept>
#include <string>

namespace runtime {
namespace {

class GgufNamer {
 public:
  GgufNamer(const sim::Model& model, bool interleaved, std::string_view buffer_name, std::int32_t layer)
      : m_(model),
        interleaved_(interleaved),
        buffer_(buffer_name),
        block_("blk." + std::to_string(layer) + ".") {
    if (buffer_ == "layer.attention.sinks") {
      owner_ = buffer_;
      kind_ = ".weight";
      return;
    }
    const std::size_t dot = buffer_.rfind('.');
    if (dot == std::string_view::npos) unknown();
    owner_ = buffer_.substr(0, dot);
    kind_ = buffer_.substr(dot);
    if (kind_ != ".weight" && kind_ != ".bias") unknown();
  }

  std::vector<WeightPart> parts() const {
    constexpr std::string_view kAttention = "layer.attention.";
    if (owner_ == "embedding") return {matrix("token_embd", m_.vocab_size, m_.hidden_size)};
    if (owner_ == "embedding_norm") return {vector("token_embd_norm", m_.hidden_size)};
    if (owner_ == "position_embedding")
      return {matrix("position_embd", m_.max_position_embeddings, m_.hidden_size)};
    if (owner_ == "head") return {matrix("output", m_.vocab_size, m_.hidden_size)};
    if (owner_ == "final_norm") return {vector("output_norm", m_.hidden_size)};
    if (owner_.ends_with("_norm") && !owner_.starts_with(kAttention))
      return {vector(block_ + norm_of_layer(), m_.hidden_size)};
    if (owner_ == "layer.attention.output")
      return {matrix(block_ + "attn_output", m_.hidden_size, m_.value_size())};
    if (owner_.starts_with(kAttention))
      return m_.has_latent_attention() ? latent(owner_.substr(kAttention.size())) : attention();
    if (owner_ == "layer.mlp.gate_up")
      return {matrix(block_ + "ffn_gate", m_.intermediate_size, m_.hidden_size),
              matrix(block_ + "ffn_up", m_.intermediate_size, m_.hidden_size)};
    if (owner_ == "layer.mlp.up") return {matrix(block_ + "ffn_up", m_.intermediate_size, m_.hidden_size)};
    if (owner_ == "layer.mlp.down")
      return {matrix(block_ + "ffn_down", m_.hidden_size, m_.intermediate_size)};
    return experts();
  }

 private:
  [[noreturn]] void unknown() const {
    throw std::invalid_argument("no GGUF file names a parameter " + std::string(buffer_));
  }

  WeightPart vector(const std::string& name, std::int64_t rows) const {
    return {.tensor = name + std::string(kind_), .rows = rows};
  }
  // A matrix, or its bias.
  WeightPart matrix(const std::string& name, std::int64_t rows, std::int64_t cols) const {
    return {.tensor = name + std::string(kind_), .rows = rows, .cols = kind_ == ".weight" ? cols : 0};
  }

  std::string norm_of_layer() const {
    const bool two_in_parallel = m_.parallel_residual && !m_.shared_norm && !m_.attention_bias;  // Falcon 40B
    if (owner_ == "layer.attention_norm") return two_in_parallel ? "attn_norm_2" : "attn_norm";
    if (owner_ == "layer.attention_output_norm") return "post_attention_norm";
    if (owner_ == "layer.mlp_output_norm") return "post_ffw_norm";
    if (owner_ != "layer.mlp_norm") unknown();
    const bool gpt_oss = m_.activation == sim::Activation::clamped_swiglu;
    return two_in_parallel ? "attn_norm" : gpt_oss ? "post_attention_norm" : "ffn_norm";
  }

  std::vector<WeightPart> attention() const {
    const std::int64_t hidden = m_.hidden_size;
    if (owner_ == "layer.attention.sinks") return {vector(block_ + "attn_sinks", m_.num_attention_heads)};
    if (owner_ == "layer.attention.qk_norm") {
      const bool each = m_.qk_norm == sim::QkNorm::per_head;
      return {vector(block_ + "attn_q_norm", each ? m_.head_dim : m_.query_size()),
              vector(block_ + "attn_k_norm", each ? m_.head_dim : m_.key_value_size())};
    }
    if (owner_ != "layer.attention.qkv") unknown();
    if (m_.norm == sim::Norm::layernorm) {  // the converter has put queries before keys before values
      WeightPart all = matrix(block_ + "attn_qkv", m_.qkv_size(), hidden);
      if (m_.position == sim::Position::rope && m_.rotated_size() < m_.head_dim) {
        all.partly_rotated = m_.rotated_size();
        all.head_rows = m_.head_dim;
        all.rotating_heads = m_.num_attention_heads + m_.num_key_value_heads;
      }
      return {all};
    }
    std::vector<WeightPart> parts{matrix(block_ + "attn_q", m_.query_size(), hidden),
                                  matrix(block_ + "attn_k", m_.key_value_size(), hidden),
                                  matrix(block_ + "attn_v", m_.key_value_size(), hidden)};
    if (interleaved_) {
      parts[0].interleaved_heads = m_.num_attention_heads;
      parts[1].interleaved_heads = m_.num_key_value_heads;
    }
    return parts;
  }

  // Neighbouring elements of the rotary parts belong together, as in DeepSeek's own files.
  std::vector<WeightPart> latent(std::string_view name) const {
    const sim::LatentAttention& a = m_.latent;
    const std::int64_t heads = m_.num_attention_heads;
    const auto rotated = [&](const char* tensor, std::int64_t of_heads, std::int64_t rows,
                             std::int64_t cols) {
      WeightPart part = matrix(block_ + tensor, rows, cols);
      part.interleaved_heads = of_heads;
      part.rotary_rows = a.qk_rope_head_dim;
      return std::vector{part};
    };
    if (name == "q_down") return {matrix(block_ + "attn_q_a", a.q_lora_rank, m_.hidden_size)};
    if (name == "q_norm") return {vector(block_ + "attn_q_a_norm", a.q_lora_rank)};
    if (name == "q_up")
      return a.q_lora_rank > 0 ? rotated("attn_q_b", heads, m_.query_size(), a.q_lora_rank)
                               : rotated("attn_q", heads, m_.query_size(), m_.hidden_size);
    if (name == "kv_down")
      return rotated("attn_kv_a_mqa", 1, a.kv_lora_rank + a.qk_rope_head_dim, m_.hidden_size);
    if (name == "kv_norm") return {vector(block_ + "attn_kv_a_norm", a.kv_lora_rank)};
    if (name != "kv_up") unknown();
    WeightPart keys = matrix(block_ + "attn_k_b", heads * a.qk_nope_head_dim, a.kv_lora_rank);
    WeightPart values = matrix(block_ + "attn_v_b", heads * a.v_head_dim, a.kv_lora_rank);
    keys.groups = values.groups = heads;
    keys.experts = heads;  // each head's keys are (latent, rows)
    return {keys, values};
  }

  std::vector<WeightPart> experts() const {
    const sim::MixtureOfExperts& e = m_.moe;
    const std::int64_t hidden = m_.hidden_size, shared = e.shared_expert_intermediate_size;
    if (owner_ == "layer.router") {
      const bool balances = kind_ == ".bias" && m_.activation != sim::Activation::clamped_swiglu;
      return {matrix(block_ + (balances ? "exp_probs_b" : "ffn_gate_inp"), e.num_experts, hidden)};
    }
    if (owner_ == "layer.shared_expert.gate") return {matrix(block_ + "ffn_gate_inp_shexp", 1, hidden)};
    if (owner_ == "layer.shared_expert.gate_up")
      return {matrix(block_ + "ffn_gate_shexp", shared, hidden),
              matrix(block_ + "ffn_up_shexp", shared, hidden)};
    if (owner_ == "layer.shared_expert.down") return {matrix(block_ + "ffn_down_shexp", hidden, shared)};
    const auto of_all = [&](const char* tensor, std::int64_t rows, std::int64_t cols) {
      WeightPart part = matrix(block_ + tensor, e.num_experts * rows, cols);
      part.groups = e.num_experts;
      return part;
    };
    const std::int64_t width = e.moe_intermediate_size;
    if (owner_ == "layer.experts.gate_up")
      return {of_all("ffn_gate_exps", width, hidden), of_all("ffn_up_exps", width, hidden)};
    if (owner_ == "layer.experts.down") return {of_all("ffn_down_exps", hidden, width)};
    unknown();
  }

  const sim::Model& m_;
  bool interleaved_;
  std::string_view buffer_, owner_, kind_;
  std::string block_;
};

}  // namespace

std::vector<WeightPart> gguf_weight_parts(const sim::Model& model, bool interleaved,
                                          std::string_view buffer_name, std::int32_t layer) {
  return GgufNamer(model, interleaved, buffer_name, layer).parts();
}

}  // namespace runtime
