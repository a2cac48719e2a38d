// What routers make of their logits, by the configurations that were published with the models.
#include <nlohmann/json.hpp>
#include <string>

#include "sim/plan/plan.h"
#include "sim/scenario/preset.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

TEST_CASE("routers of presets score, normalise and scale as the models' config.json say") {
  struct Router {
    const char* model;
    ScoringFunc score;
    bool normalised;
    double factor;
  };
  constexpr auto softmax = ScoringFunc::softmax, sigmoid = ScoringFunc::sigmoid;
  // clang-format off
  const Router r = GENERATE(
      Router{"deepseek-moe-16b", softmax, false, 1},
      Router{"deepseek-v2-lite", softmax, false, 1},
      Router{"deepseek-v2", softmax, false, 16},
      Router{"deepseek-v3", sigmoid, true, 2.5},
      Router{"kimi-k2", sigmoid, true, 2.827},
      Router{"moonlight-16b-a3b", sigmoid, true, 2.446},
      Router{"glm-4.5", sigmoid, true, 2.5},
      Router{"glm-4.5-air", sigmoid, true, 1},
      Router{"nemotron-3-nano-30b-a3b", sigmoid, true, 2.5},
      Router{"llama-4-scout", sigmoid, false, 1},
      Router{"llama-4-maverick", sigmoid, false, 1},
      Router{"qwen3-235b-a22b", softmax, true, 1},
      Router{"qwen1.5-moe-a2.7b", softmax, false, 1},
      Router{"mixtral-8x7b", softmax, true, 1});
  // clang-format on
  CAPTURE(r.model);
  const Model m = load_model_preset(r.model);
  CHECK(m.moe.scoring_func == r.score);
  CHECK(m.moe.norm_topk_prob == r.normalised);
  CHECK(m.moe.routed_scaling_factor == r.factor);
}

// A bias that moves the choice alone (arXiv 2412.19437, section 2.1.2) is there beside scores by a sigmoid;
// gpt-oss has a bias of logits, and says so.
TEST_CASE("a router with a bias for balance scores by a sigmoid") {
  for (const std::string& name : preset_names(PresetKind::model)) {
    const Model m = load_model_preset(name);
    if (!m.moe.router_bias || name.starts_with("gpt-oss")) continue;
    CAPTURE(name);
    CHECK(m.moe.scoring_func == ScoringFunc::sigmoid);
  }
}

nlohmann::json qwen_moe(nlohmann::json dense_layers) {
  return {{"model_type", "qwen3_moe"},
          {"hidden_size", 2048},
          {"intermediate_size", 6144},
          {"num_hidden_layers", 48},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 4},
          {"head_dim", 128},
          {"vocab_size", 151936},
          {"rms_norm_eps", 1e-6},
          {"max_position_embeddings", 40960},
          {"num_experts", 128},
          {"num_experts_per_tok", 8},
          {"moe_intermediate_size", 768},
          {"mlp_only_layers", std::move(dense_layers)}};
}

TEST_CASE("layers that a Qwen config names as dense are dense, and what plans cannot have is refused") {
  const auto read = [](nlohmann::json dense_layers) {
    return model_from_hugging_face_config(qwen_moe(std::move(dense_layers)).dump(), "m/config.json");
  };
  CHECK(read(nlohmann::json::array()).dense_layers() == 0);
  CHECK(read(nullptr).dense_layers() == 0);
  const Model m = read({2, 0, 1});
  CHECK(m.dense_layers() == 3);
  CHECK_FALSE(m.is_expert_layer(2));
  CHECK(m.is_expert_layer(3));
  for (const nlohmann::json& wrong : {nlohmann::json{0, 2}, nlohmann::json{47}, nlohmann::json{-1},
                                      nlohmann::json{"0"}, nlohmann::json(3)}) {
    CAPTURE(wrong.dump());
    CHECK_THROWS_WITH(read(wrong), contains("mlp_only_layers"));
  }
}

}  // namespace
