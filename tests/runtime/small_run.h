// Scenarios that train or generate in milliseconds, for tests of the runtime.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "runtime/model_source.h"
#include "sim/scenario/preset.h"
#include "sim/scenario/scenario.h"
#include "tests/support/temporary_folder.h"

namespace tests {

inline sim::Model small_gpt() {
  sim::Model m;
  m.name = "small-gpt";
  m.norm = sim::Norm::layernorm;
  m.activation = sim::Activation::gelu;
  m.position = sim::Position::learned;
  m.hidden_size = 32;
  m.intermediate_size = 128;
  m.num_hidden_layers = 2;
  m.num_attention_heads = m.num_key_value_heads = 4;
  m.head_dim = 8;
  m.vocab_size = 256;
  m.max_position_embeddings = 64;
  m.tie_word_embeddings = m.attention_bias = m.attention_output_bias = m.mlp_bias = true;
  return m;
}

inline sim::Model small_llama() {
  sim::Model m;
  m.name = "small-llama";
  m.hidden_size = 48;
  m.intermediate_size = 80;
  m.num_hidden_layers = 3;
  m.num_attention_heads = 4;
  m.num_key_value_heads = 2;
  m.head_dim = 16;
  m.vocab_size = 256;
  m.max_position_embeddings = 64;
  return m;
}

// Nemotron-H's layers; the chunks of its scans do not divide the sequences.
inline sim::Model small_hybrid() {
  sim::Model m;
  m.name = "small-hybrid";
  m.activation = sim::Activation::squared_relu;
  m.position = sim::Position::none;
  m.hidden_size = 32;
  m.intermediate_size = 48;
  m.num_hidden_layers = 5;
  m.hybrid_override_pattern = "M-*M-";
  m.num_attention_heads = 4;
  m.num_key_value_heads = 2;
  m.head_dim = 8;
  m.state_space = {.mamba_num_heads = 4,
                   .mamba_head_dim = 8,
                   .ssm_state_size = 12,
                   .n_groups = 2,
                   .conv_kernel = 4,
                   .chunk_size = 7};
  m.vocab_size = 256;
  m.max_position_embeddings = 64;
  return m;
}

// A model of either family with sizes drawn at random.
inline sim::Model random_model(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<std::int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  sim::Model m = seed % 2 == 0 ? small_gpt() : small_llama();
  m.num_hidden_layers = one_of({1, 2, 3, 5});
  m.num_attention_heads = one_of({2, 4, 6});
  m.head_dim = one_of({8, 16});
  m.num_key_value_heads = m.position == sim::Position::learned ? m.num_attention_heads : one_of({1, 2});
  m.hidden_size =
      m.position == sim::Position::learned ? m.num_attention_heads * m.head_dim : one_of({24, 48});
  m.intermediate_size = one_of({40, 96});
  m.vocab_size = one_of({256, 301});
  if (m.position == sim::Position::rope) m.tie_word_embeddings = one_of({0, 1}) == 1;
  return m;
}

inline sim::Scenario scenario_of(const sim::Model& model) {
  sim::Scenario s;
  s.model = model;
  s.hardware.name = "test-cpu";
  s.hardware.peak[sim::DType::fp32] = sim::tflops(0.1);
  s.hardware.memory = sim::gib(8);
  s.hardware.memory_bandwidth = sim::gb_per_s(20);
  s.implementation = sim::load_implementation_preset("ridgepoint");
  s.workload.dtype = sim::DType::fp32;
  return s;
}

inline sim::Scenario training(const sim::Model& model, std::int64_t seq_len = 16,
                              std::int64_t micro_batch = 2, std::int64_t global_batch = 4) {
  sim::Scenario s = scenario_of(model);
  s.workload.task = sim::Task::train;
  s.workload.seq_len = seq_len;
  s.workload.micro_batch_size = micro_batch;
  s.workload.global_batch_size = global_batch;
  return s;
}

inline sim::Scenario generation(const sim::Model& model, std::int64_t max_new_tokens,
                                std::int64_t batch = 1) {
  sim::Scenario s = scenario_of(model);
  s.workload.task = sim::Task::generate;
  s.workload.prompt_length = 3;
  s.workload.max_new_tokens = max_new_tokens;
  s.workload.batch_size = batch;
  return s;
}

// Weights drawn at random.
inline runtime::ModelSource drawn(const sim::Model& model) {
  runtime::ModelSource source;
  source.model = model;
  source.origin = "preset " + model.name;
  return source;
}

// Tokens (below 256) of which each mostly decides the next: there is something to learn. Returns the file's
// path.
inline std::string write_tokens(const std::filesystem::path& folder, std::size_t count = 5000) {
  std::mt19937 random(7);
  std::vector<std::uint16_t> tokens(count);
  for (std::size_t i = 1; i < count; ++i)
    tokens[i] =
        static_cast<std::uint16_t>(random() % 10 < 7 ? (5 * tokens[i - 1] + 1) % 251 : random() % 251);
  const std::filesystem::path file = folder / "tokens.bin";
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(2 * count));
  return file.string();
}

}  // namespace tests
