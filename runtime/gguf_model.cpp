#include "runtime/gguf_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "runtime/error.h"
#include "sim/preset_error.h"

namespace runtime {
namespace {

using Json = nlohmann::json;

// A key behind the architecture's name, and config.json's words for it. Families read the words that they
// know.
struct Key {
  std::string_view gguf;
  std::initializer_list<const char*> words;
};
const Key kSizes[] = {
    {"embedding_length", {"hidden_size", "n_embd", "d_model"}},
    {"feed_forward_length", {"intermediate_size", "n_inner", "ffn_hidden_size"}},
    {"block_count", {"num_hidden_layers", "n_layer", "n_layers"}},
    {"attention.head_count", {"num_attention_heads", "n_head", "n_heads"}},
    {"attention.head_count_kv", {"num_key_value_heads", "num_kv_heads"}},
    {"attention.key_length", {"head_dim"}},
    {"context_length", {"max_position_embeddings", "n_positions", "seq_length", "max_seq_len"}},
    {"expert_count", {"num_experts", "num_local_experts", "n_routed_experts"}},
    {"expert_used_count", {"num_experts_per_tok"}},
    {"expert_feed_forward_length", {"moe_intermediate_size"}},
    {"expert_shared_feed_forward_length", {"shared_expert_intermediate_size"}},
};
const Key kNumbers[] = {
    {"attention.layer_norm_rms_epsilon", {"rms_norm_eps"}},
    {"attention.layer_norm_epsilon", {"layer_norm_epsilon", "layer_norm_eps"}},
    {"rope.freq_base", {"rope_theta", "rotary_emb_base"}},
};

// A file's metadata under its architecture's name, and the config.json that is made of it.
class Metadata {
 public:
  explicit Metadata(const Gguf& file) : file_(file), prefix_(file.string("general.architecture")) {
    prefix_ += ".";
  }

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return file_.has(key(name)); }
  bool has_tensor(std::string_view name) const { return file_.find(name) != nullptr; }
  // A number of every layer: one, or the same for each.
  std::int64_t integer(std::string_view name) const {
    const auto found = file_.metadata().find(key(name));
    if (found == file_.metadata().end() || !std::holds_alternative<GgufArray>(found->second))
      return file_.integer(key(name));
    const std::vector<std::int64_t> all = file_.integers(key(name));
    if (all.empty() || std::ranges::find_if(all, [&](auto n) { return n != all.front(); }) != all.end())
      refuse(name, "differs between layers; plans have layers of one size");
    return all.front();
  }
  // Files have 32 bits for it. What they were made from is the shortest number that rounds to them.
  double number(std::string_view name) const {
    char digits[32];
    const auto end =
        std::to_chars(std::begin(digits), std::end(digits), static_cast<float>(file_.number(key(name))));
    double value = 0;
    std::from_chars(digits, end.ptr, value);
    return value;
  }
  std::string_view text(std::string_view name) const { return file_.string(key(name)); }

  void copy_integer(std::string_view name, const char* word) {
    if (has(name)) config[word] = integer(name);
  }
  void copy_number(std::string_view name, const char* word) {
    if (has(name)) config[word] = number(name);
  }
  [[noreturn]] void refuse(std::string_view name, const std::string& why) const {
    throw InputError(file_.path().string() + ": " + key(name) + " " + why);
  }

  const Gguf& file() const { return file_; }
  Json config = Json::object();

 private:
  const Gguf& file_;
  std::string prefix_;
};

// Windows of layers in turn: how many layers, or a mark for each. A file may leave it to the architecture.
void read_window(Metadata& m) {
  m.copy_integer("attention.sliding_window", "sliding_window");
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  if (!m.has(kPattern)) return;
  const GgufValue& pattern = m.file().metadata().at(m.key(kPattern));
  const auto* const marks = std::get_if<GgufArray>(&pattern);
  if (!marks) return m.copy_integer(kPattern, "sliding_window_pattern");
  if (marks->element_type != GgufValueType::boolean)
    m.refuse(kPattern, "must be a number, or a mark a layer");
  Json types = Json::array();
  for (const std::byte mark : marks->bytes)
    types.push_back(mark == std::byte{0} ? "full_attention" : "sliding_attention");
  m.config["layer_types"] = std::move(types);
}

void read_llama(Metadata& m) {
  if (m.has("expert_count") && m.integer("expert_count") > 0) m.config["model_type"] = "mixtral";
}

void read_qwen2_moe(Metadata& m) {
  m.config["norm_topk_prob"] = false;  // llama.cpp, models/qwen2moe.cpp
}
void read_qwen3_moe(Metadata& m) {
  m.config["norm_topk_prob"] = true;  // models/qwen3moe.cpp
}

// Files made before llama.cpp absorbed the projections of keys have the heads' own lengths, others those of
// what is cached, with the heads' beside them.
void read_deepseek(Metadata& m) {
  Json& config = m.config;
  m.copy_integer("attention.q_lora_rank", "q_lora_rank");
  config["kv_lora_rank"] = m.integer("attention.kv_lora_rank");
  const bool absorbed = m.has("attention.key_length_mla");
  const std::int64_t rotated = m.integer("rope.dimension_count");
  config["qk_rope_head_dim"] = rotated;
  config["qk_nope_head_dim"] =
      m.integer(absorbed ? "attention.key_length_mla" : "attention.key_length") - rotated;
  config["v_head_dim"] = m.integer(absorbed ? "attention.value_length_mla" : "attention.value_length");
  config["num_key_value_heads"] = config["num_attention_heads"];
  config["n_shared_experts"] = m.integer("expert_shared_count");
  m.copy_integer("leading_dense_block_count", "first_k_dense_replace");
  m.copy_integer("expert_group_count", "n_group");
  m.copy_integer("expert_group_used_count", "topk_group");
  config["norm_topk_prob"] = m.has("expert_weights_norm") && m.file().boolean(m.key("expert_weights_norm"));
  config["routed_scaling_factor"] = m.has("expert_weights_scale") ? m.number("expert_weights_scale") : 1.0;
  constexpr std::int64_t kSigmoid = 2;  // llama.cpp, LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID
  const bool third = m.has("expert_gating_func") && m.integer("expert_gating_func") == kSigmoid;
  config["model_type"] = third ? "deepseek_v3" : "deepseek_v2";
  if (m.has("nextn_predict_layers"))  // behind the model's own layers
    config["num_hidden_layers"] = m.integer("block_count") - m.integer("nextn_predict_layers");
}

// Scores are divided by the root of a head's size; those of the largest model by the root of its width over
// its heads. Files do not say so (llama.cpp, models/gemma2.cpp and gemma3.cpp).
void read_score_scale(Metadata& m, std::int64_t layers_of_the_largest) {
  const bool largest = m.integer("block_count") == layers_of_the_largest;
  m.config["query_pre_attn_scalar"] =
      largest ? Json(m.integer("embedding_length") / m.integer("attention.head_count"))
              : m.config["head_dim"];
}
void read_gemma2(Metadata& m) {
  read_window(m);
  if (!m.has("attention.sliding_window")) m.config["sliding_window"] = 4096;  // models/gemma2.cpp
  m.copy_number("attn_logit_softcapping", "attn_logit_softcapping");
  m.copy_number("final_logit_softcapping", "final_logit_softcapping");
  read_score_scale(m, 46);
}
void read_gemma3(Metadata& m) {
  read_window(m);
  m.copy_number("rope.freq_base_swa", "rope_local_base_freq");
  m.copy_number("final_logit_softcapping", "final_logit_softcapping");
  read_score_scale(m, 62);
}

void read_gpt_oss(Metadata& m) {
  m.config["sliding_window"] = m.integer("attention.sliding_window");
}

// What files leave out is written in models/llama4.cpp.
void read_llama4(Metadata& m) {
  m.config["intermediate_size_mlp"] = m.integer("feed_forward_length");
  m.config["intermediate_size"] = m.integer("expert_feed_forward_length");
  m.config["interleave_moe_layer_step"] = m.integer("interleave_moe_layer_step");
  constexpr std::int64_t kMaverick = 128;  // experts of the size without norms of queries and keys
  m.config["use_qk_norm"] = m.integer("expert_count") != kMaverick;
  if (m.has("attention.sliding_window") && m.integer("attention.sliding_window") == 0)
    m.refuse("attention.sliding_window", "must be absent: layers see segments, but for each fourth");
}

void read_olmo2(Metadata& m) {
  if (m.has("attention.sliding_window"))
    m.refuse("attention.sliding_window",
             "must be absent: OLMo 2's layers see all tokens, OLMo 3 is not read");
}

void read_gpt2(Metadata& m) {
  m.config["activation_function"] = "gelu_new";
}
void read_mpt(Metadata& m) {
  const std::int64_t width = m.integer("embedding_length"), inner = m.integer("feed_forward_length");
  if (width < 1 || inner % width != 0)
    m.refuse("feed_forward_length", "must be a multiple of embedding_length");
  m.config["expansion_ratio"] = inner / width;
  if (m.has("attention.clamp_kqv") && m.number("attention.clamp_kqv") != 0)
    m.refuse("attention.clamp_kqv", "must be absent: no plan is made for it");
  const double alibi = m.has("attention.max_alibi_bias") ? m.number("attention.max_alibi_bias") : 0;
  if (alibi != 8) m.refuse("attention.max_alibi_bias", "must be 8: MPT's learned positions are not read");
}
void read_falcon(Metadata& m) {
  const bool two_norms = m.has_tensor("blk.0.attn_norm_2.weight");
  const bool grouped = m.has("attention.head_count_kv") && m.integer("attention.head_count_kv") > 1;
  m.config["new_decoder_architecture"] = two_norms || grouped;
  m.config["num_ln_in_parallel_attn"] = two_norms ? 2 : 1;
  m.config["bias"] = m.has_tensor("blk.0.attn_qkv.bias");
}
void read_gpt_neox(Metadata& m) {
  m.config["hidden_act"] = "gelu";
  m.config["attention_bias"] = m.has_tensor("blk.0.attn_qkv.bias");
  if (m.has("use_parallel_residual"))
    m.config["use_parallel_residual"] = m.file().boolean(m.key("use_parallel_residual"));
  const std::int64_t heads = m.integer("attention.head_count"), width = m.integer("embedding_length");
  if (m.has("rope.dimension_count") && heads > 0 && width >= heads)
    m.config["rotary_pct"] =
        static_cast<double>(m.integer("rope.dimension_count")) / static_cast<double>(width / heads);
}

// general.architecture, the family that config.json calls model_type, and what only this one has.
struct Architecture {
  std::string_view name;
  const char* family;
  void (*read)(Metadata&) = nullptr;
  bool interleaved = false;     // rotary halves, in the rows of queries and keys
  bool partly_rotated = false;  // heads may be
  bool whole_yarn = true;       // YaRN's blend begins and ends at whole dimensions; files do not say
};
constexpr Architecture kArchitectures[] = {
    {"llama", "llama", read_llama, true},  // Mistral, Mixtral and SmolLM2 too
    {"llama4", "llama4_text", read_llama4, true},
    {"qwen2", "qwen2"},
    {"qwen2moe", "qwen2_moe", read_qwen2_moe},
    {"qwen3", "qwen3"},
    {"qwen3moe", "qwen3_moe", read_qwen3_moe},
    {"deepseek2", "deepseek_v2", read_deepseek, false, true},
    {"gpt-oss", "gpt_oss", read_gpt_oss, false, false, false},
    {"gemma", "gemma"},
    {"gemma2", "gemma2", read_gemma2},
    {"gemma3", "gemma3_text", read_gemma3},
    {"olmo2", "olmo2", read_olmo2},
    {"gpt2", "gpt2", read_gpt2},
    {"gptneox", "gpt_neox", read_gpt_neox, false, true},
    {"bloom", "bloom"},
    {"mpt", "mpt", read_mpt},
    {"falcon", "falcon", read_falcon},
};

const Architecture& architecture_of(const Gguf& file) {
  const std::string_view name = file.string("general.architecture");
  const auto found = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (found != std::end(kArchitectures)) return *found;
  std::string all;
  for (const Architecture& a : kArchitectures)
    all += (all.empty() ? "" : &a == std::end(kArchitectures) - 1 ? " and " : ", ") + std::string(a.name);
  throw InputError(file.path().string() + ": general.architecture is " + std::string(name) + "; " + all +
                   " are accepted");
}

// Llama 3's stretching of rotary frequencies, of which a file keeps each frequency's factor. Between the
// wavelengths that stay and those that are stretched whole, the reciprocal of the factor is
// 1 / whole + (1 - 1 / whole) s, where s = (original / wavelength - low) / (high - low): a line in 1 /
// wavelength. It is the same for multiples of the three numbers, so that low is 1.
std::optional<Json> llama3_scaling(std::span<const float> factors, double theta) {
  const double whole = *std::ranges::max_element(factors);
  if (!(whole > 1)) return std::nullopt;
  const auto turns = [&](std::size_t i) {  // 1 / wavelength
    return std::pow(theta, -static_cast<double>(i) / static_cast<double>(factors.size())) /
           (2 * std::numbers::pi);
  };
  const auto share = [&](double factor) { return (1 / factor - 1 / whole) / (1 - 1 / whole); };
  std::vector<std::size_t> between;
  for (std::size_t i = 0; i < factors.size(); ++i)
    if (factors[i] > 1 && factors[i] < whole) between.push_back(i);
  double high = 4, original = 8192;  // Llama 3.1
  if (between.size() >= 2) {
    const std::size_t a = between.front(), b = between.back();
    const double slope = (share(factors[a]) - share(factors[b])) / (turns(a) - turns(b));
    const double at_zero = share(factors[a]) - slope * turns(a);
    high = 1 - 1 / at_zero;
    original = std::round(slope * (high - 1));
  } else if (between.size() == 1) {
    original = std::round((share(factors[between[0]]) * (high - 1) + 1) / turns(between[0]));
  }
  constexpr double kNear = 1e-3;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double s = std::clamp((original * turns(i) - 1) / (high - 1), 0.0, 1.0);
    const double expected = 1 / ((1 - s) / whole + s);
    if (!(std::abs(factors[i] - expected) <= kNear * expected)) return std::nullopt;
  }
  return Json{{"rope_type", "llama3"},
              {"factor", whole},
              {"low_freq_factor", 1.0},
              {"high_freq_factor", high},
              {"original_max_position_embeddings", static_cast<std::int64_t>(original)}};
}

void read_rope(Metadata& m, const Architecture& architecture) {
  constexpr std::string_view kType = "rope.scaling.type", kFactors = "rope_freqs.weight";
  if (m.has("rope.dimension_count") && m.config.contains("head_dim") && !architecture.partly_rotated)
    if (const std::int64_t rotated = m.integer("rope.dimension_count"); rotated != m.config["head_dim"])
      m.refuse("rope.dimension_count", "is " + std::to_string(rotated) + "; only whole heads (" +
                                           m.config["head_dim"].dump() + ") are rotated here");
  if (const GgufTensor* const tensor = m.file().find(kFactors)) {
    std::vector<float> factors(static_cast<std::size_t>(tensor->element_count()));
    m.file().read_as_f32(kFactors, factors);
    const double theta = m.config.value("rope_theta", 10000.0);
    const auto scaling = factors.empty() ? std::nullopt : llama3_scaling(factors, theta);
    if (!scaling && std::ranges::any_of(factors, [](float f) { return f != 1; }))
      throw InputError(
          m.file().path().string() +
          ": rope_freqs.weight stretches the rotary frequencies one by one, and not as Llama 3's; "
          "open the Hugging Face folder of this model, whose config.json says how");
    if (scaling) m.config["rope_scaling"] = *scaling;
  }
  if (!m.has(kType) || m.text(kType) == "none") return;
  const std::string type(m.text(kType));
  if (m.config.contains("kv_lora_rank"))
    m.refuse(kType, "is " + type + "; latent attention runs without it here");
  if (type != "linear" && type != "yarn")
    m.refuse(kType, "is " + type + "; none, linear and yarn are accepted");
  Json scaling{{"rope_type", type}, {"factor", m.number("rope.scaling.factor")}};
  if (type == "yarn") {
    scaling["original_max_position_embeddings"] = m.integer("rope.scaling.original_context_length");
    const auto copy = [&](const char* name, const char* word) {
      if (m.has(name)) scaling[word] = m.number(name);
    };
    copy("rope.scaling.yarn_beta_fast", "beta_fast");
    copy("rope.scaling.yarn_beta_slow", "beta_slow");
    copy("rope.scaling.attn_factor", "attention_factor");
    copy("rope.scaling.yarn_attn_factor", "attention_factor");
    scaling["truncate"] = architecture.whole_yarn;
  }
  m.config["rope_scaling"] = std::move(scaling);
}

}  // namespace

sim::Model model_from_gguf(const Gguf& file) {
  const Architecture& architecture = architecture_of(file);
  Metadata m(file);
  m.config["model_type"] = architecture.family;
  for (const Key& key : kSizes)
    for (const char* const word : key.words) m.copy_integer(key.gguf, word);
  for (const Key& key : kNumbers)
    for (const char* const word : key.words) m.copy_number(key.gguf, word);
  for (const char* const needed :
       {"embedding_length", "feed_forward_length", "block_count", "attention.head_count", "context_length"})
    static_cast<void>(m.integer(needed));  // or says that it is missing
  if (m.integer("attention.head_count") <= 0) m.refuse("attention.head_count", "must be positive");
  const std::int64_t heads = m.integer("attention.head_count");
  for (const char* const word : {"num_key_value_heads", "num_kv_heads"})
    if (!m.has("attention.head_count_kv")) m.config[word] = heads;
  if (!m.has("attention.key_length")) m.config["head_dim"] = m.integer("embedding_length") / heads;

  const GgufTensor& embedding = file.at("token_embd.weight");
  if (embedding.shape.size() != 2)
    throw InputError(file.path().string() + ": token_embd.weight must have 2 dimensions, but has " +
                     std::to_string(embedding.shape.size()));
  m.config["vocab_size"] = embedding.shape.front();
  m.config["tie_word_embeddings"] = file.find("output.weight") == nullptr;
  if (architecture.read) architecture.read(m);
  read_rope(m, architecture);

  sim::Model model;
  try {
    model = sim::model_from_hugging_face_config(m.config.dump(), file.path().string());
  } catch (const sim::FieldError& error) {
    const std::string key = gguf_key_of(file, error.field);
    throw InputError(file.path().string() + ": " + (key.empty() ? error.field : key) + " " + error.wrong);
  }
  const auto any_of = [&](std::initializer_list<const char*> tensors) {
    return std::ranges::any_of(tensors, [&](const char* name) { return file.find(name) != nullptr; });
  };
  model.attention_bias = any_of({"blk.0.attn_q.bias", "blk.0.attn_qkv.bias"});
  model.attention_output_bias = any_of({"blk.0.attn_output.bias"});
  model.mlp_bias = any_of({"blk.0.ffn_up.bias", "blk.0.ffn_up_exps.bias"});
  model.source = "GGUF metadata";
  model.name = file.has("general.name") ? file.string("general.name") : "";
  return model;
}

WeightNames gguf_weight_names(const Gguf& file) {
  return architecture_of(file).interleaved ? WeightNames::gguf_interleaved : WeightNames::gguf;
}

std::string gguf_key_of(const Gguf& file, std::string_view field) {
  const std::string prefix = std::string(file.string("general.architecture")) + ".";
  for (const std::span<const Key> keys : {std::span<const Key>(kSizes), std::span<const Key>(kNumbers)})
    for (const Key& key : keys)
      for (const std::string_view word : key.words) {
        // Our name of both epsilons.
        const bool named = word == field || (field == "norm_eps" && word.ends_with("_eps"));
        if (named && file.has(prefix + std::string(key.gguf))) return prefix + std::string(key.gguf);
      }
  return "";
}

}  // namespace runtime
