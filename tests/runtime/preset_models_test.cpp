// Every model preset, shrunk, runs on the CPU. What cannot is in a list with its reason, and the list can
// only shrink: what stands there and runs fails the test.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include "runtime/error.h"
#include "runtime/generate.h"
#include "runtime/train.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

// Words of the refusal, by preset.
using Reasons = std::map<std::string, std::string_view, std::less<>>;

const Reasons kNotTrained = {
    {"deepseek-v3", "multi-token prediction"}, {"glm-4.5", "multi-token prediction"},
    {"glm-4.5-air", "multi-token prediction"}, {"gpt-oss-20b", "attention sinks"},
    {"gpt-oss-120b", "attention sinks"},
};
const Reasons kNotGenerated = {
    {"gpt-oss-20b", "attention sinks"},
    {"gpt-oss-120b", "attention sinks"},
};

// At most 4 layers, and no wider than 128: windows, segments, groups and patterns as far as they fit.
sim::Model shrunk(sim::Model m) {
  const auto at_most = [](std::int64_t& n, std::int64_t most) { n = std::min(n, most); };
  m.name = "shrunk";
  m.source.clear();
  const bool one_for_all = m.num_key_value_heads == 1,
             grouped = m.num_key_value_heads < m.num_attention_heads;
  m.num_attention_heads = 4;
  m.num_key_value_heads = one_for_all ? 1 : grouped ? 2 : 4;
  m.hidden_size = 64;
  m.head_dim = 16;
  m.intermediate_size = 96;
  m.vocab_size = 256;
  at_most(m.max_position_embeddings, 64);
  if (m.is_hybrid()) {
    std::string kinds;
    for (const char letter : m.hybrid_override_pattern)
      if (kinds.find(letter) == std::string::npos) kinds += letter;
    m.hybrid_override_pattern = kinds;
    m.num_hidden_layers = static_cast<std::int64_t>(kinds.size());
    m.state_space.mamba_num_heads = 4;
    m.state_space.mamba_head_dim = 16;
    at_most(m.state_space.ssm_state_size, 16);
    at_most(m.state_space.n_groups, 2);
    at_most(m.state_space.chunk_size, 8);
  } else {
    at_most(m.num_hidden_layers, 4);
  }
  at_most(m.sliding_window, 8);
  at_most(m.sliding_window_pattern, 4);
  at_most(m.attention_chunk_size, 8);
  at_most(m.no_rope_layer_interval, 4);
  if (m.has_experts()) {
    sim::MixtureOfExperts& e = m.moe;
    at_most(e.num_experts, 8);
    at_most(e.n_group, 4);
    at_most(e.topk_group, std::max<std::int64_t>(1, e.n_group / 2));
    at_most(e.num_experts_per_tok, e.n_group > 1 ? 4 : 3);
    e.moe_intermediate_size = 32;
    at_most(e.shared_expert_intermediate_size, 32);
    at_most(e.first_k_dense_replace, 2);
    e.weights_dtype.reset();  // published weights in fewer bits train in the type that runs compute in
    e.weights_group = 0;
  }
  if (m.has_latent_attention()) {
    at_most(m.latent.q_lora_rank, 24);
    m.latent.kv_lora_rank = 16;
    m.latent.qk_nope_head_dim = 16;
    m.latent.qk_rope_head_dim = 8;
    m.latent.v_head_dim = 12;
    m.head_dim = 24;
    m.num_key_value_heads = m.num_attention_heads;
  }
  return m;
}

// Runs every preset's model; those that differ in size alone are one when shrunk, and run once.
void check_all(const Reasons& reasons, const auto& run) {
  std::map<std::string, std::string> refusals;  // by the shrunk model; empty where it ran
  for (const std::string& preset : sim::preset_names(sim::PresetKind::model)) {
    CAPTURE(preset);
    const sim::Model model = shrunk(sim::load_model_preset(preset));
    const auto [refusal, is_new] = refusals.try_emplace(sim::to_json(model));
    if (is_new) {
      try {
        run(model);
      } catch (const runtime::NoDevice& refused) {
        refusal->second = refused.what();
      }
    }
    const auto listed = reasons.find(preset);
    if (listed == reasons.end())
      CHECK(refusal->second == "");
    else
      CHECK(refusal->second.find(listed->second) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("Every model preset, shrunk, trains three steps on the CPU but those listed with their reason") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings;
  settings.steps = 3;
  settings.data = tests::write_tokens(folder.path());
  settings.device.threads = 1;
  check_all(kNotTrained, [&](const sim::Model& model) {
    const sim::Report report =
        runtime::train(tests::training(model, 24, 2, 2), tests::drawn(model), settings, {}, {});
    REQUIRE(report.steps.size() == 3);
    for (const sim::StepResult& step : report.steps) {
      CHECK(std::isfinite(step.loss));
      CHECK(step.grad_norm > 0);
    }
  });
}

TEST_CASE("Every model preset, shrunk, generates the same eight tokens with a KV cache and without") {
  runtime::GenerateSettings settings;
  settings.prompt = {1, 2, 3, 4, 5, 6};
  settings.ignore_eos = true;
  settings.device.threads = 1;
  check_all(kNotGenerated, [&](const sim::Model& model) {
    sim::Scenario scenario = tests::generation(model, 8);
    const auto cached = runtime::generate(scenario, tests::drawn(model), settings, {}, {});
    REQUIRE(cached.tokens.size() == 1);
    CHECK(cached.tokens[0].size() == 8);
    scenario.workload.kv_cache = false;
    CHECK(runtime::generate(scenario, tests::drawn(model), settings, {}, {}).tokens == cached.tokens);
  });
}
