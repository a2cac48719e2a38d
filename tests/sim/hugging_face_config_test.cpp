#include <nlohmann/json.hpp>
#include <string>

#include "sim/scenario/model.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using nlohmann::json;
using sim::Model;

namespace {

const std::string kFile = "models/some-model/config.json";

Model read(const json& config) {
  return sim::model_from_hugging_face_config(config.dump(), kFile);
}

// The fields of config.json that bear on shapes, as transformers 4 writes them.
json gpt2_config() {
  return {{"model_type", "gpt2"},
          {"n_embd", 768},
          {"n_layer", 12},
          {"n_head", 12},
          {"n_inner", nullptr},
          {"n_positions", 1024},
          {"vocab_size", 50257},
          {"layer_norm_epsilon", 1e-5},
          {"activation_function", "gelu_new"},
          {"attn_pdrop", 0.1},
          {"architectures", {"GPT2LMHeadModel"}}};
}

json llama_config() {
  return {{"model_type", "llama"},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"vocab_size", 128256},
          {"max_position_embeddings", 131072},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", false},
          {"rope_theta", 500000.0},
          {"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}}},
          {"torch_dtype", "bfloat16"}};
}

json mistral_config() {
  return {{"model_type", "mistral"}, {"hidden_size", 4096},       {"intermediate_size", 14336},
          {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"num_key_value_heads", 8},
          {"vocab_size", 32000},     {"rms_norm_eps", 1e-5},      {"max_position_embeddings", 32768},
          {"rope_theta", 1000000.0}, {"hidden_act", "silu"},      {"sliding_window", nullptr}};
}

json qwen2_config() {
  return {{"model_type", "qwen2"},       {"hidden_size", 896},        {"intermediate_size", 4864},
          {"num_hidden_layers", 24},     {"num_attention_heads", 14}, {"num_key_value_heads", 2},
          {"vocab_size", 151936},        {"rms_norm_eps", 1e-6},      {"max_position_embeddings", 32768},
          {"rope_theta", 1000000.0},     {"hidden_act", "silu"},      {"tie_word_embeddings", true},
          {"use_sliding_window", false}, {"sliding_window", 32768},   {"max_window_layers", 24}};
}

// What the preset would be if it were called as the config is.
Model preset_as_config(const char* name) {
  Model m = sim::load_model_preset(name);
  m.name = "some-model";
  m.source = kFile;
  return m;
}

json without(json config, const std::string& field) {
  config.erase(field);
  return config;
}
json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

}  // namespace

TEST_CASE("the published configs of four families are the presets of the same models") {
  CHECK(read(gpt2_config()) == preset_as_config("gpt2-124m"));
  CHECK(read(llama_config()) == preset_as_config("llama-3.1-8b"));
  CHECK(read(mistral_config()) == preset_as_config("mistral-7b"));
  CHECK(read(qwen2_config()) == preset_as_config("qwen2.5-0.5b"));
}

TEST_CASE("transformers 4 and 5 write RoPE differently and mean the same") {
  const json old = llama_config();
  json type = old;  // before 4.43 the kind was called "type"
  type["rope_scaling"]["type"] = type["rope_scaling"]["rope_type"];
  type["rope_scaling"].erase("rope_type");
  CHECK(read(type) == read(old));

  json parameters = without(without(old, "rope_scaling"), "rope_theta");
  parameters["rope_parameters"] = old["rope_scaling"];
  parameters["rope_parameters"]["rope_theta"] = old["rope_theta"];
  CHECK(read(parameters) == read(old));

  json plain = without(without(old, "rope_scaling"), "rope_theta");
  CHECK(read(with(plain, {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}}}})) ==
        read(with(plain, {{"rope_theta", 500000.0}, {"rope_scaling", nullptr}})));
  CHECK(read(plain).rope_theta == 10000);

  const Model linear = read(with(plain, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}));
  CHECK(linear.rope_scaling.kind == sim::RopeScaling::Kind::linear);
  CHECK(linear.rope_scaling.factor == 2);
}

TEST_CASE("a config without a field that bears on shapes is refused by file and field") {
  const auto check = [](const json& config, std::initializer_list<const char*> fields) {
    for (const std::string field : fields) {
      CAPTURE(field);
      CHECK_THROWS_AS(read(without(config, field)), sim::PresetError);
      CHECK_THROWS_WITH(read(without(config, field)),
                        contains(kFile) && contains("\"" + field + "\"") && contains("missing"));
    }
  };
  check(gpt2_config(),
        {"model_type", "n_embd", "n_layer", "n_head", "n_positions", "vocab_size", "layer_norm_epsilon"});
  const auto common = {"hidden_size", "intermediate_size",       "num_hidden_layers", "num_attention_heads",
                       "vocab_size",  "max_position_embeddings", "rms_norm_eps"};
  check(llama_config(), common);
  check(mistral_config(), common);
  check(qwen2_config(), common);
  check(mistral_config(), {"num_key_value_heads"});
  check(qwen2_config(), {"num_key_value_heads"});
}

TEST_CASE("what a family leaves out has its family's meaning") {
  CHECK(read(without(gpt2_config(), "n_inner")).intermediate_size == 4 * 768);
  CHECK(read(with(gpt2_config(), {{"n_inner", 1000}})).intermediate_size == 1000);
  CHECK(read(gpt2_config()).tie_word_embeddings);
  CHECK_FALSE(read(with(gpt2_config(), {{"tie_word_embeddings", false}})).tie_word_embeddings);

  CHECK(read(without(llama_config(), "num_key_value_heads")).num_key_value_heads == 32);
  CHECK(read(with(llama_config(), {{"head_dim", nullptr}})).head_dim == 128);
  CHECK(read(with(llama_config(), {{"head_dim", 64}})).head_dim == 64);
  CHECK_FALSE(read(without(llama_config(), "tie_word_embeddings")).tie_word_embeddings);

  const Model biased = read(with(llama_config(), {{"attention_bias", true}, {"mlp_bias", true}}));
  CHECK(biased.attention_bias);
  CHECK(biased.attention_output_bias);
  CHECK(biased.mlp_bias);
  const Model qwen = read(qwen2_config());
  CHECK(qwen.attention_bias);
  CHECK_FALSE(qwen.attention_output_bias);
}

TEST_CASE("a sliding window counts only where it would hide tokens") {
  CHECK(read(with(mistral_config(), {{"sliding_window", 4096}})).sliding_window == 4096);
  CHECK(read(with(mistral_config(), {{"sliding_window", 4096}, {"max_position_embeddings", 4096}}))
            .sliding_window == 0);
  const json windowed = with(qwen2_config(), {{"use_sliding_window", true}, {"sliding_window", 4096}});
  CHECK(read(windowed).sliding_window == 0);  // max_window_layers: no layer is left that has it
  CHECK(read(with(windowed, {{"max_window_layers", 0}})).sliding_window == 4096);
  CHECK_THROWS_WITH(read(with(windowed, {{"max_window_layers", 12}})), contains("max_window_layers"));
}

TEST_CASE("the published configs of families that are predicted are the presets of the same models") {
  const auto same_shape = [](const json& config, const char* preset) {
    Model m = read(config), p = preset_as_config(preset);
    CAPTURE(preset);
    // Presets have the kinds of operations that GPUs have kernels for, of the same shapes.
    if (m.activation == sim::Activation::gelu_exact) m.activation = sim::Activation::gelu;
    if (m.activation == sim::Activation::clamped_swiglu) m.activation = sim::Activation::swiglu;
    if (m.qk_norm == sim::QkNorm::without_gain) m.qk_norm = sim::QkNorm::none;
    m.moe.weights_on = p.moe.weights_on;
    CHECK(sim::count_parameters(m).total == sim::count_parameters(p).total);
    CHECK(m == p);
  };
  same_shape({{"model_type", "mixtral"},
              {"hidden_size", 4096},
              {"intermediate_size", 14336},
              {"num_hidden_layers", 32},
              {"num_attention_heads", 32},
              {"num_key_value_heads", 8},
              {"vocab_size", 32000},
              {"rms_norm_eps", 1e-5},
              {"max_position_embeddings", 32768},
              {"rope_theta", 1000000.0},
              {"num_local_experts", 8},
              {"num_experts_per_tok", 2},
              {"sliding_window", nullptr}},
             "mixtral-8x7b");
  same_shape({{"model_type", "qwen3_moe"},
              {"hidden_size", 2048},
              {"intermediate_size", 6144},
              {"num_hidden_layers", 48},
              {"num_attention_heads", 32},
              {"num_key_value_heads", 4},
              {"head_dim", 128},
              {"vocab_size", 151936},
              {"rms_norm_eps", 1e-6},
              {"max_position_embeddings", 40960},
              {"rope_theta", 1000000.0},
              {"num_experts", 128},
              {"num_experts_per_tok", 8},
              {"norm_topk_prob", true},
              {"moe_intermediate_size", 768},
              {"decoder_sparse_step", 1}},
             "qwen3-30b-a3b");
  same_shape({{"model_type", "deepseek_v3"},
              {"hidden_size", 7168},
              {"intermediate_size", 18432},
              {"num_hidden_layers", 61},
              {"num_attention_heads", 128},
              {"num_key_value_heads", 128},
              {"vocab_size", 129280},
              {"rms_norm_eps", 1e-6},
              {"max_position_embeddings", 163840},
              {"rope_theta", 10000},
              {"q_lora_rank", 1536},
              {"kv_lora_rank", 512},
              {"qk_nope_head_dim", 128},
              {"qk_rope_head_dim", 64},
              {"v_head_dim", 128},
              {"n_routed_experts", 256},
              {"n_shared_experts", 1},
              {"num_experts_per_tok", 8},
              {"moe_intermediate_size", 2048},
              {"moe_layer_freq", 1},
              {"first_k_dense_replace", 3},
              {"n_group", 8},
              {"topk_group", 4},
              {"num_nextn_predict_layers", 1},
              {"quantization_config", {{"quant_method", "fp8"}}}},
             "deepseek-v3");
  same_shape({{"model_type", "llama4"},
              {"text_config",
               {{"model_type", "llama4_text"},
                {"hidden_size", 5120},
                {"intermediate_size", 8192},
                {"intermediate_size_mlp", 16384},
                {"num_hidden_layers", 48},
                {"num_attention_heads", 40},
                {"num_key_value_heads", 8},
                {"head_dim", 128},
                {"vocab_size", 202048},
                {"max_position_embeddings", 1048576},
                {"rms_norm_eps", 1e-5},
                {"rope_theta", 500000.0},
                {"num_local_experts", 128},
                {"num_experts_per_tok", 1},
                {"interleave_moe_layer_step", 2},
                {"attention_chunk_size", 8192}}}},
             "llama-4-maverick");
  same_shape({{"model_type", "bloom"},
              {"n_embed", 14336},
              {"n_layer", 70},
              {"num_attention_heads", 112},
              {"vocab_size", 250880},
              {"layer_norm_epsilon", 1e-5},
              {"seq_length", 2048}},
             "bloom-176b");
  same_shape({{"model_type", "falcon"},
              {"hidden_size", 4544},
              {"num_hidden_layers", 32},
              {"num_attention_heads", 71},
              {"multi_query", true},
              {"parallel_attn", true},
              {"bias", false},
              {"alibi", false},
              {"vocab_size", 65024},
              {"layer_norm_epsilon", 1e-5}},
             "falcon-7b");
  same_shape({{"model_type", "opt"},
              {"hidden_size", 4096},
              {"num_hidden_layers", 32},
              {"num_attention_heads", 32},
              {"ffn_dim", 16384},
              {"activation_function", "relu"},
              {"vocab_size", 50272},
              {"max_position_embeddings", 2048},
              {"word_embed_proj_dim", 4096},
              {"do_layer_norm_before", true}},
             "opt-6.7b");
}

TEST_CASE("what no plan is made for is refused in a sentence that names the field") {
  struct Case {
    json config;
    std::string field;
  };
  const std::vector<Case> cases{
      {with(llama_config(), {{"model_type", "mamba"}}), "model_type"},
      {with(llama_config(), {{"hidden_act", "gelu"}}), "hidden_act"},
      {with(gpt2_config(), {{"activation_function", "gelu"}}), "activation_function"},
      {with(gpt2_config(), {{"scale_attn_weights", false}}), "scale_attn_weights"},
      {with(gpt2_config(), {{"scale_attn_by_inverse_layer_idx", true}}), "scale_attn_by_inverse_layer_idx"},
      {with(gpt2_config(), {{"add_cross_attention", true}}), "add_cross_attention"},
      {with(llama_config(), {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}}}}),
       "rope_scaling.rope_type"},
      {with(llama_config(), {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}}}),
       "rope_scaling.low_freq_factor"},
      {with(llama_config(), {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor"},
      {with(llama_config(), {{"quantization_config", {{"bits", 4}}}}), "quantization_config"},
      {with(llama_config(), {{"num_key_value_heads", 5}}), "num_key_value_heads"},
      {with(llama_config(), {{"num_key_value_heads", 0}}), "num_key_value_heads"},
      {with(llama_config(), {{"hidden_size", 4097}}), "hidden_size"},
      {with(llama_config(), {{"hidden_size", "wide"}}), "hidden_size"},
      {with(llama_config(), {{"vocab_size", -1}}), "vocab_size"},
      {with(llama_config(), {{"num_hidden_layers", 3.5}}), "num_hidden_layers"},
      {with(llama_config(), {{"rms_norm_eps", nullptr}}), "rms_norm_eps"},
      {with(llama_config(), {{"rope_theta", -1.0}}), "rope_theta"},
      {with(llama_config(), {{"rope_scaling", 8}}), "rope_scaling"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.field, c.config.dump());
    CHECK_THROWS_AS(read(c.config), sim::PresetError);
    CHECK_THROWS_WITH(read(c.config), contains(kFile) && contains("\"" + c.field + "\""));
  }
  CHECK_THROWS_WITH(sim::model_from_hugging_face_config("{", kFile),
                    contains(kFile) && contains("not valid JSON"));
}

TEST_CASE("a number that a size is computed of is refused by its key before that size is no 64-bit number") {
  const json gpt_like{{"n_embd", 768},       {"d_model", 768},    {"hidden_size", 768},
                      {"n_layer", 12},       {"n_layers", 12},    {"num_hidden_layers", 12},
                      {"n_head", 12},        {"n_heads", 12},     {"num_attention_heads", 12},
                      {"vocab_size", 50257}, {"ffn_dim", 3072},   {"intermediate_size", 3072},
                      {"n_positions", 2048}, {"seq_length", 512}, {"max_position_embeddings", 2048},
                      {"rms_norm_eps", 1e-5}};
  const json latent = with(gpt_like, {{"kv_lora_rank", 512},
                                      {"qk_nope_head_dim", 128},
                                      {"qk_rope_head_dim", 64},
                                      {"v_head_dim", 128},
                                      {"n_routed_experts", 8},
                                      {"n_shared_experts", 2},
                                      {"num_experts_per_tok", 2},
                                      {"moe_intermediate_size", 64}});
  struct Case {
    std::string family, key;
    json others;
  };
  for (const Case& c : {Case{"gpt2", "n_embd", gpt_like},
                        {"bloom", "hidden_size", without(gpt_like, "n_embed")},
                        {"gptj", "n_embd", gpt_like},
                        {"mpt", "d_model", gpt_like},
                        {"mpt", "expansion_ratio", gpt_like},
                        {"opt", "max_position_embeddings", gpt_like},
                        {"deepseek_v2", "qk_nope_head_dim", latent},
                        {"deepseek_v2", "qk_rope_head_dim", latent},
                        {"deepseek_v2", "moe_intermediate_size", latent},
                        {"deepseek_v2", "n_shared_experts", latent}})
    for (const std::int64_t value :
         {std::int64_t{-7}, std::int64_t{1} << 62, 12 * ((std::int64_t{1} << 60) / 12)}) {
      CAPTURE(c.family, c.key, value);
      CHECK_THROWS_WITH(read(with(c.others, {{"model_type", c.family}, {c.key, value}})),
                        contains(kFile + ": field \"" + c.key + "\" must be from "));
    }
}

TEST_CASE("a refusal does not repeat a long word of a config") {
  const std::string endless(30'000, 'x');
  for (const json& config :
       {with(llama_config(), {{"model_type", endless}}), with(llama_config(), {{"hidden_act", endless}}),
        with(llama_config(), {{"rope_scaling", {{"rope_type", endless}}}})}) {
    try {
      read(config);
      FAIL("it is refused");
    } catch (const sim::PresetError& error) {
      CHECK(std::string(error.what()).size() < 1000);
    }
  }
}

TEST_CASE("files of Gemma 3 leave out what transformers takes as known, and what sees is left aside") {
  // text_config of https://huggingface.co/google/gemma-3-4b-pt and gemma-3-27b-pt.
  const json rotary{{"factor", 8.0}, {"rope_type", "linear"}};
  const json of_4b{{"hidden_size", 2560},       {"intermediate_size", 10240}, {"model_type", "gemma3_text"},
                   {"num_hidden_layers", 34}, {"rope_scaling", rotary},       {"sliding_window", 1024}};
  json of_27b{{"hidden_size", 5376},        {"intermediate_size", 21504}, {"model_type", "gemma3_text"},
              {"num_hidden_layers", 62},    {"rope_scaling", rotary},     {"sliding_window", 1024},
              {"num_attention_heads", 32},  {"num_key_value_heads", 16},  {"head_dim", 128},
              {"query_pre_attn_scalar", 168}};
  for (const auto& [text, preset] : {std::pair{of_4b, "gemma-3-4b"}, {of_27b, "gemma-3-27b"}}) {
    CAPTURE(preset);
    Model m = read({{"model_type", "gemma3"}, {"text_config", text}, {"vision_config", json::object()}});
    Model p = preset_as_config(preset);
    CHECK(m.norm_gains_from_one);
    CHECK(m.embedding_multiplier == Approx(p.embedding_multiplier).epsilon(1e-9));
    m.norm_gains_from_one = p.norm_gains_from_one;
    m.embedding_multiplier = p.embedding_multiplier;
    CHECK(m == p);
  }
}
