#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "sim/plan/legality.h"
#include "sim/plan/plan.h"
#include "sim/scenario/preset.h"
#include "tests/sim/random_scenario.h"
#include "tests/support/catch.h"

using sim::Problem;
using sim::Scenario;

namespace {

Scenario sound_training() {
  Scenario s;
  s.model = sim::load_model_preset("llama-3.1-8b");
  s.hardware = sim::load_hardware_preset("h100-sxm");
  s.workload = sim::load_workload_preset("pretrain-2k");
  s.implementation = sim::load_implementation_preset("ridgepoint");
  return s;
}

bool complains_about(const Scenario& s, const std::string& field) {
  const std::vector<Problem> problems = sim::validate(s);
  return std::any_of(problems.begin(), problems.end(),
                     [&field](const Problem& p) { return p.field == field && !p.message.empty(); });
}

struct Contradiction {
  std::string field;
  std::function<void(Scenario&)> make;
};

}  // namespace

TEST_CASE("a scenario that says one wrong thing gets a problem beside that field") {
  REQUIRE(sim::validate(sound_training()).empty());
  const double nan = std::nan("");
  const std::vector<Contradiction> contradictions{
      {"model.hidden_size", [](Scenario& s) { s.model.hidden_size = 0; }},
      {"model.intermediate_size", [](Scenario& s) { s.model.intermediate_size = -1; }},
      {"model.num_hidden_layers", [](Scenario& s) { s.model.num_hidden_layers = 0; }},
      {"model.num_attention_heads", [](Scenario& s) { s.model.num_attention_heads = 0; }},
      {"model.num_key_value_heads", [](Scenario& s) { s.model.num_key_value_heads = 7; }},
      {"model.num_key_value_heads", [](Scenario& s) { s.model.num_key_value_heads = 0; }},
      {"model.head_dim", [](Scenario& s) { s.model.head_dim = 127; }},
      {"model.vocab_size", [](Scenario& s) { s.model.vocab_size = 0; }},
      {"model.max_position_embeddings", [](Scenario& s) { s.model.max_position_embeddings = 0; }},
      {"model.norm_eps", [=](Scenario& s) { s.model.norm_eps = nan; }},
      {"model.rope_theta", [](Scenario& s) { s.model.rope_theta = 0; }},
      {"model.rope_scaling.factor", [](Scenario& s) { s.model.rope_scaling.factor = 0.5; }},
      {"model.rope_scaling.high_freq_factor", [](Scenario& s) { s.model.rope_scaling.high_freq_factor = 1; }},
      {"model.rope_scaling.original_max_position_embeddings",
       [](Scenario& s) { s.model.rope_scaling.original_max_position_embeddings = 0; }},
      {"hardware.peak", [](Scenario& s) { s.hardware.peak.clear(); }},
      {"hardware.peak.bf16", [](Scenario& s) { s.hardware.peak[sim::DType::bf16] = {-1}; }},
      {"hardware.memory", [](Scenario& s) { s.hardware.memory = {0}; }},
      {"hardware.memory_bandwidth", [=](Scenario& s) { s.hardware.memory_bandwidth = {nan}; }},
      {"hardware.launch", [](Scenario& s) { s.hardware.launch = {-1}; }},
      {"hardware.devices_per_node", [](Scenario& s) { s.hardware.devices_per_node = 0; }},
      {"strategy.data_parallel", [](Scenario& s) { s.strategy.data_parallel = -8; }},
      {"strategy.data_parallel", [](Scenario& s) { s.strategy.data_parallel = 0; }},
      {"strategy.tensor_parallel", [](Scenario& s) { s.strategy.tensor_parallel = 3; }},  // of 32 heads
      {"strategy.tensor_parallel", [](Scenario& s) { s.strategy.tensor_parallel = 64; }},
      {"strategy.pipeline_parallel", [](Scenario& s) { s.strategy.pipeline_parallel = 33; }},  // of 32 layers
      {"strategy.context_parallel",
       [](Scenario& s) {
         s.workload.task = sim::Task::generate;
         s.strategy.context_parallel = 2;
       }},
      {"strategy.virtual_pipeline",
       [](Scenario& s) {
         s.strategy.pipeline_parallel = 4;
         s.strategy.virtual_pipeline = 9;  // 36 pieces of 32 layers
       }},
      {"strategy.virtual_pipeline",
       [](Scenario& s) {
         s.strategy.pipeline_parallel = 4;
         s.strategy.virtual_pipeline = 2;
         s.workload.global_batch_size = 6;  // micro-batches come in groups of 4
         s.workload.micro_batch_size = 1;
       }},
      {"strategy.virtual_pipeline",
       [](Scenario& s) {
         s.strategy.pipeline_parallel = 4;
         s.strategy.virtual_pipeline = 2;
         s.strategy.schedule = "zb-h1";
       }},
      {"strategy.schedule", [](Scenario& s) { s.strategy.schedule = "gpipe"; }},  // one stage
      {"strategy.schedule",
       [](Scenario& s) {
         s.strategy.pipeline_parallel = 4;
         s.strategy.schedule = "interleaved";  // one chunk
       }},
      {"strategy.sequence_parallel",
       [](Scenario& s) {
         s.strategy.tensor_parallel = 4;
         s.strategy.sequence_parallel = true;
         s.workload.seq_len = 1023;
       }},
      {"hardware.network_link",
       [](Scenario& s) {
         s.strategy.tensor_parallel = 32;
         s.hardware.network_link = {0};
       }},
      {"strategy.context_parallel",
       [](Scenario& s) {
         s.strategy.context_parallel = 2;
         s.workload.seq_len = 1026;  // two segments a rank
       }},
      {"strategy.context_parallel",
       [](Scenario& s) {
         s.strategy.context_parallel = 2;
         s.implementation.attention = sim::AttentionKind::standard;
       }},
      {"strategy.expert_parallel", [](Scenario& s) { s.strategy.expert_parallel = -3; }},
      {"strategy.virtual_pipeline", [](Scenario& s) { s.strategy.virtual_pipeline = 2; }},
      {"strategy.zero_stage", [](Scenario& s) { s.strategy.zero_stage = 1; }},
      {"strategy.zero_stage", [](Scenario& s) { s.strategy.zero_stage = 4; }},
      {"strategy.sequence_parallel", [](Scenario& s) { s.strategy.sequence_parallel = true; }},
      {"strategy.schedule", [](Scenario& s) { s.strategy.schedule = "waltz"; }},
      {"workload.dtype", [](Scenario& s) { s.workload.dtype = sim::DType::int32; }},
      {"workload.dtype",
       [](Scenario& s) {
         s.hardware = sim::load_hardware_preset("a100-sxm-80gb");
         s.workload.dtype = sim::DType::fp8;  // Ampere has no fp8
       }},
      {"workload.seq_len", [](Scenario& s) { s.workload.seq_len = 0; }},
      {"workload.seq_len",
       [](Scenario& s) {
         s.model = sim::load_model_preset("gpt2-124m");
         s.workload.seq_len = 1025;  // learned positions end at 1,024
       }},
      {"workload.micro_batch_size", [](Scenario& s) { s.workload.micro_batch_size = 0; }},
      {"implementation.head_chunks", [](Scenario& s) { s.implementation.head_chunks = 0; }},
      {"implementation.head_chunks", [](Scenario& s) { s.implementation.head_chunks = 3; }},  // of 2,048 rows
      {"implementation.head_chunks", [](Scenario& s) { s.implementation.head_chunks = 1 << 11; }},
      {"implementation.head_chunks",
       [](Scenario& s) {
         s.implementation = sim::load_implementation_preset("torchtitan_2024_eager");
         s.implementation.head_chunks = 2;  // its logits' copies are of all rows
       }},
      {"workload.kv_block",
       [](Scenario& s) {
         s.workload.task = sim::Task::generate;
         s.workload.kv_block = -1;
       }},
      {"workload.kv_block",
       [](Scenario& s) {
         s.workload.task = sim::Task::generate;
         s.workload.kv_cache = false;
         s.workload.kv_block = 16;
       }},
      {"workload.kv_block",
       [](Scenario& s) {
         s.workload.task = sim::Task::generate;
         s.implementation = sim::load_implementation_preset("vllm_0.2");
         s.workload.kv_block = 16;  // beside the engine's own
       }},
      {"workload.global_batch_size", [](Scenario& s) { s.workload.micro_batch_size = 3; }},
      {"workload.measure_noise",
       [](Scenario& s) {
         s.workload.measure_noise = true;
         s.workload.global_batch_size = s.workload.micro_batch_size;  // one micro-batch
       }},
      {"workload.measure_noise",
       [](Scenario& s) {
         s.workload.measure_noise = true;
         s.workload.global_batch_size = 8 * s.workload.micro_batch_size;
         s.strategy.data_parallel = 2;
       }},
      {"workload.batch_size",
       [](Scenario& s) {
         s.workload.task = sim::Task::generate;
         s.workload.batch_size = 0;
       }},
      {"workload.prompt_length",
       [](Scenario& s) {
         s.workload.task = sim::Task::generate;
         s.workload.prompt_length = 0;
       }},
      {"workload.max_new_tokens",
       [](Scenario& s) {
         s.model = sim::load_model_preset("gpt2-124m");
         s.workload.task = sim::Task::generate;
         s.workload.prompt_length = 1000;
         s.workload.max_new_tokens = 25;
       }},
      {"implementation.gradient_dtype",
       [](Scenario& s) { s.implementation.gradient_dtype = sim::DType::int4; }},
  };
  for (const Contradiction& contradiction : contradictions) {
    Scenario s = sound_training();
    contradiction.make(s);
    CAPTURE(contradiction.field);
    CHECK(complains_about(s, contradiction.field));
    CHECK_THROWS_AS(sim::make_plan(s), std::invalid_argument);
  }
}

TEST_CASE("what the task does not use is not complained about") {
  Scenario s = sound_training();
  s.workload.max_new_tokens = 0;
  s.workload.prompt_length = -1;
  CHECK(sim::validate(s).empty());
  s.workload = {};
  s.workload.task = sim::Task::generate;
  s.workload.seq_len = 0;
  s.workload.global_batch_size = 0;
  CHECK(sim::validate(s).empty());
}

TEST_CASE("a plan is made of every scenario without problems") {
  std::mt19937_64 random(17);
  for (int i = 0; i < 200; ++i) {
    const Scenario s = random_scenario(random);
    INFO(sim::to_json(s));
    REQUIRE(sim::validate(s).empty());
    REQUIRE_NOTHROW(sim::make_plan(s));
  }
}

TEST_CASE("no number is too absurd: validate neither throws nor overflows, and finds it") {
  std::mt19937_64 random(18);
  const std::vector<std::int64_t> absurd{std::numeric_limits<std::int64_t>::min(), -1, 0,
                                         std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::max()};
  for (int i = 0; i < 2000; ++i) {
    Scenario s = random_scenario(random);
    const bool train = s.workload.task == sim::Task::train;
    const std::vector<std::int64_t*> fields{
        &s.model.hidden_size,
        &s.model.intermediate_size,
        &s.model.num_hidden_layers,
        &s.model.num_attention_heads,
        &s.model.num_key_value_heads,
        &s.model.head_dim,
        &s.model.vocab_size,
        &s.model.max_position_embeddings,
        train ? &s.workload.seq_len : &s.workload.prompt_length,
        train ? &s.workload.micro_batch_size : &s.workload.batch_size,
        train ? &s.workload.global_batch_size : &s.workload.max_new_tokens};
    for (std::int64_t n = draw(random, 1, 4); n > 0; --n)
      *fields[static_cast<std::size_t>(draw(random, 0, 10))] =
          absurd[static_cast<std::size_t>(draw(random, 0, 4))];
    CHECK_FALSE(sim::validate(s).empty());
  }
}

TEST_CASE("sizes that are each possible but not together are found before anything overflows") {
  Scenario s = sound_training();
  s.workload.seq_len = std::int64_t{1} << 27;
  s.workload.micro_batch_size = s.workload.global_batch_size = std::int64_t{1} << 23;
  CHECK(complains_about(s, "workload.seq_len"));

  s = sound_training();
  s.workload.global_batch_size = std::int64_t{1} << 23;
  CHECK(complains_about(s, "workload.global_batch_size"));

  s = sound_training();
  s.model.hidden_size = std::int64_t{1} << 24;
  s.model.intermediate_size = std::int64_t{1} << 24;
  s.model.num_hidden_layers = 1 << 16;
  CHECK(complains_about(s, "model.hidden_size"));

  // Sound sizes, once a micro-batch: more than 1 EiB goes through memory.
  s = sound_training();
  s.model = sim::load_model_preset("mixtral-8x7b");
  s.workload.global_batch_size = 1 << 18;
  REQUIRE(sim::validate(s).empty());
  s.implementation.kernels.accumulation_bytes_per_parameter = 1000;
  CHECK(complains_about(s, "workload.global_batch_size"));
  s.implementation.kernels.accumulation_bytes_per_parameter = 0;
  s.implementation.kernels.side_passes["layer.mlp.down.forward"] = 1000;
  CHECK(complains_about(s, "workload.global_batch_size"));

  // Products of latent attention, which are not of the hidden size.
  s = sound_training();
  s.model = sim::load_model_preset("deepseek-v3");
  REQUIRE(sim::validate(s.model).empty());
  s.model.num_attention_heads = s.model.num_key_value_heads = 1 << 14;
  s.model.latent.q_lora_rank = std::int64_t{1} << 24;
  s.model.num_hidden_layers = 1 << 16;
  CHECK_FALSE(sim::validate(s.model).empty());
  CHECK(complains_about(s, "model.hidden_size"));
}

TEST_CASE("layers that no model has are not counted, and a period of 0 layers divides nothing") {
  Scenario s = sound_training();
  s.strategy.tensor_parallel = 3;
  s.model.num_hidden_layers = std::int64_t{1} << 62;
  CHECK(complains_about(s, "model.num_hidden_layers"));

  s = sound_training();
  s.model = sim::load_model_preset("mixtral-8x7b");
  s.strategy.tensor_parallel = 3;
  s.model.moe.decoder_sparse_step = 0;
  CHECK(complains_about(s, "model.decoder_sparse_step"));
}

TEST_CASE("sizes of what a model does not have are in range, too, and count for nothing") {
  const std::int64_t absurd = std::numeric_limits<std::int64_t>::max();
  for (const auto& [field, make] :
       {Contradiction{"model.v_head_dim", [=](Scenario& s) { s.model.latent.v_head_dim = -absurd; }},
        {"model.qk_nope_head_dim", [=](Scenario& s) { s.model.latent.qk_nope_head_dim = absurd; }},
        {"model.n_groups", [=](Scenario& s) { s.model.state_space.n_groups = absurd; }},
        {"model.ssm_state_size", [=](Scenario& s) { s.model.state_space.ssm_state_size = absurd; }},
        {"model.moe_intermediate_size", [=](Scenario& s) { s.model.moe.moe_intermediate_size = -absurd; }}}) {
    Scenario s = sound_training();
    make(s);
    CAPTURE(field);
    CHECK(complains_about(s, field));
  }
}
