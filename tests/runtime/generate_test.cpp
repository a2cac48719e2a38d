#include "runtime/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <variant>

#include "runtime/error.h"
#include "sim/cost/predict.h"
#include "sim/plan/memory.h"
#include "sim/report/metrics.h"
#include "tests/runtime/llama_file.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace {

runtime::GenerateSettings with_prompt(std::vector<std::int32_t> prompt) {
  runtime::GenerateSettings settings;
  settings.prompt = std::move(prompt);
  settings.device.threads = 2;
  return settings;
}

runtime::Generation generate(const sim::Scenario& scenario, const runtime::GenerateSettings& settings) {
  return runtime::generate(scenario, tests::drawn(scenario.model), settings, {}, {});
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

// Relative, by the root mean square.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> difference(a);
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] -= b[i];
  return norm_of(difference) / norm_of(b);
}

// One token a byte, one of which ends a text.
runtime::Tokenizer bytes_with_end(std::int32_t end) {
  runtime::TokenizerDescription description;
  for (std::int32_t b = 0; b < 256; ++b) {
    description.tokens.emplace_back(1, static_cast<char>(b));
    description.byte_tokens[static_cast<std::size_t>(b)] = b;
  }
  description.eos = {end};
  return runtime::Tokenizer(std::move(description));
}

}  // namespace

TEST_CASE("With and without a KV cache the tokens are the same: random models, greedy and sampled") {
  const auto seed = GENERATE(range(0u, 6u));
  sim::Scenario scenario = tests::generation(tests::random_model(seed), 12, 2);
  runtime::GenerateSettings settings = with_prompt({1, 2, 3, 5, 8});
  settings.seed = seed;
  settings.temperature = GENERATE(0.0f, 1.0f);
  scenario.workload.kv_cache = true;
  const runtime::Generation cached = generate(scenario, settings);
  scenario.workload.kv_cache = false;
  const runtime::Generation recomputed = generate(scenario, settings);
  REQUIRE(cached.tokens[0].size() == 12);
  CHECK(cached.tokens == recomputed.tokens);
}

TEST_CASE("With the weights in place a generation can be repeated: its tokens are the same each time") {
  const sim::Model model = GENERATE(tests::random_model(1), tests::random_model(2), tests::small_hybrid());
  CAPTURE(model.name);
  sim::Scenario scenario = tests::generation(model, 12, 2);
  scenario.workload.kv_block = GENERATE(0, 4);
  runtime::GenerateSettings settings = with_prompt({1, 2, 3, 5, 8});
  settings.temperature = 1;
  const auto once = generate(scenario, settings).tokens;
  runtime::Communicator alone;
  const std::vector<runtime::Generation> repeated =
      runtime::generate_repeatedly(3, scenario, tests::drawn(scenario.model), settings, alone, {}, {});
  REQUIRE(repeated.size() == 3);
  for (const runtime::Generation& generation : repeated) {
    CHECK(generation.tokens == once);
    CHECK(generation.first_logits == repeated.front().first_logits);
    CHECK(generation.report.tokens.size() == 12);
  }
}

TEST_CASE("What whoever is told of a token takes for it is no part of the generation's time") {
  const sim::Scenario scenario = tests::generation(tests::small_llama(), 4, 1);
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> told{};
  const auto begin = Clock::now();
  const sim::Report report = runtime::generate(scenario, tests::drawn(scenario.model), with_prompt({1, 2, 3}),
                                               [&](const sim::Event& event) {
                                                 if (!std::holds_alternative<sim::TokenResult>(event)) return;
                                                 const auto before = Clock::now();
                                                 std::this_thread::sleep_for(std::chrono::milliseconds(50));
                                                 told += Clock::now() - before;
                                               },
                                               {})
                                 .report;
  const std::chrono::duration<double> whole = Clock::now() - begin;
  CHECK(report.step_time.value <= (whole - told).count());
  double tokens = 0;
  for (const sim::TokenResult& token : report.tokens) tokens += token.duration.value;
  CHECK(tokens <= (whole - told).count());
}

TEST_CASE("A hybrid's tokens are those of its states carried on, of all tokens again, and of any batch") {
  sim::Scenario scenario = tests::generation(tests::small_hybrid(), 20, 3);
  runtime::GenerateSettings settings = with_prompt({1, 2, 3, 5, 8, 13, 21, 34, 55});
  settings.temperature = GENERATE(0.0f, 1.0f);
  const runtime::Generation carried = generate(scenario, settings);
  scenario.workload.kv_cache = false;
  CHECK(generate(scenario, settings).tokens == carried.tokens);
  scenario.workload.kv_cache = true;
  scenario.workload.batch_size = 1;
  CHECK(generate(scenario, settings).tokens[0] == carried.tokens[0]);
}

TEST_CASE("A KV cache of blocks gives the tokens of one in a piece, in the memory that was predicted") {
  const auto seed = GENERATE(range(0u, 4u));
  sim::Scenario scenario = tests::generation(tests::random_model(seed), 12, 3);
  runtime::GenerateSettings settings = with_prompt({1, 2, 3, 5, 8});
  settings.seed = seed;
  settings.temperature = GENERATE(0.0f, 1.0f);
  const auto kv_cache = [](const sim::Report& report) {
    std::int64_t bytes = 0;
    for (const sim::MemoryLine& line : report.memory)
      if (line.category == "kv_cache") bytes += line.bytes.value;
    return bytes;
  };
  const runtime::Generation whole = generate(scenario, settings);
  scenario.workload.prompt_length = 5;
  const sim::Model& m = scenario.model;
  for (const std::int64_t block : {1, 4, 16, 64}) {
    CAPTURE(m.name, block);
    scenario.workload.kv_block = block;
    const runtime::Generation paged = generate(scenario, settings);
    CHECK(paged.tokens == whole.tokens);
    const std::int64_t tokens = (5 + 12 + block - 1) / block * block;
    const std::int64_t cache = 4 * 3 * m.num_key_value_heads * tokens * m.head_dim;  // keys of a layer
    CHECK(kv_cache(paged.report) == 2 * m.num_hidden_layers * sim::aligned({cache}).value);
    CHECK(kv_cache(paged.report) == kv_cache(sim::predict(scenario)));
  }
}

TEST_CASE("A KV cache in fp8 takes a quarter of the bytes, and the logits follow as far as e4m3 goes") {
  sim::Scenario scenario = tests::generation(GENERATE(tests::small_gpt(), tests::small_llama()), 2);
  const runtime::GenerateSettings settings = with_prompt({1, 2, 3, 5, 8});
  const runtime::Generation exact = generate(scenario, settings);
  scenario.workload.kv_dtype = sim::DType::fp8;
  double difference = 0, size = 0;
  for (const std::int64_t block : {0, 16}) {
    scenario.workload.kv_block = block;
    const runtime::Generation rounded = generate(scenario, settings);
    CHECK(rounded.first_logits != exact.first_logits);
    for (std::size_t v = 0; v < exact.first_logits.size(); ++v) {
      const double x = exact.first_logits[v], d = rounded.first_logits[v] - x;
      difference += d * d;
      size += x * x;
    }
  }
  // Half a step of three bits of significand, in keys and in values, of each layer.
  const double half_step = 0x1p-4 * std::sqrt(2.0 * static_cast<double>(scenario.model.num_hidden_layers));
  CHECK(std::sqrt(difference / size) < half_step);
  scenario.workload.kv_dtype = sim::DType::int4;
  CHECK_THROWS_AS(generate(scenario, settings), runtime::NoDevice);
  CHECK_THROWS_WITH(
      generate(scenario, settings),
      Catch::Matchers::EndsWith(
          " keeps the KV cache in workload.dtype or bf16, fp8, int8; workload.kv_dtype is int4"));
}

TEST_CASE("A KV cache in int8 is a byte an element and a scale a row, and logits follow to 127 steps") {
  sim::Scenario scenario = tests::generation(GENERATE(tests::small_gpt(), tests::small_llama()), 2);
  const runtime::GenerateSettings settings = with_prompt({1, 2, 3, 5, 8});
  const runtime::Generation exact = generate(scenario, settings);
  scenario.workload.prompt_length = 5;
  scenario.workload.kv_dtype = sim::DType::int8;
  const sim::Model& m = scenario.model;
  for (const std::int64_t block : {0, 16}) {
    scenario.workload.kv_block = block;
    const runtime::Generation rounded = generate(scenario, settings);
    CHECK(rounded.first_logits != exact.first_logits);
    // A row's largest is some three times its root mean square: half a step of 127 is 1 % of that.
    CHECK(distance(rounded.first_logits, exact.first_logits) < 0.02);
    std::int64_t bytes = 0;
    for (const sim::MemoryLine& line : rounded.report.memory)
      if (line.category == "kv_cache") bytes += line.bytes.value;
    const std::int64_t tokens = block == 0 ? 7 : 16;
    const std::int64_t rows = m.num_key_value_heads * tokens;
    CHECK(bytes == 2 * m.num_hidden_layers * sim::aligned({rows * (m.head_dim + 4)}).value);
  }
}

TEST_CASE("A KV cache of blocks gives a model with windows the tokens of one in a piece, in every type") {
  sim::Model model = tests::small_llama();
  model.sliding_window = 6;
  model.sliding_window_pattern = 2;
  sim::Scenario scenario = tests::generation(model, 14, 2);
  scenario.workload.prompt_length = 5;
  const runtime::GenerateSettings settings = with_prompt({1, 2, 3, 5, 8});
  for (const std::optional<sim::DType> type :
       {std::optional<sim::DType>(), std::optional(sim::DType::bf16), std::optional(sim::DType::fp8),
        std::optional(sim::DType::int8)}) {
    scenario.workload.kv_dtype = type;
    scenario.workload.kv_block = 0;
    const runtime::Generation whole = generate(scenario, settings);
    for (const std::int64_t block : {1, 4, 16}) {
      CAPTURE(block);
      scenario.workload.kv_block = block;
      CHECK(generate(scenario, settings).tokens == whole.tokens);
    }
  }
}

TEST_CASE("Greedy sequences of a batch are those that each would be alone") {
  const sim::Model model = tests::small_llama();
  const runtime::GenerateSettings settings = with_prompt({9, 9, 7});
  const runtime::Generation alone = generate(tests::generation(model, 8), settings);
  const runtime::Generation batch = generate(tests::generation(model, 8, 3), settings);
  REQUIRE(batch.tokens.size() == 3);
  for (const std::vector<std::int32_t>& tokens : batch.tokens) CHECK(tokens == alone.tokens[0]);
}

TEST_CASE("The greedy first token is the largest of the first logits") {
  const sim::Model model = tests::small_gpt();
  const runtime::Generation g = generate(tests::generation(model, 1), with_prompt({4}));
  REQUIRE(g.first_logits.size() == static_cast<std::size_t>(model.vocab_size));
  const auto largest =
      std::max_element(g.first_logits.begin(), g.first_logits.end()) - g.first_logits.begin();
  CHECK(g.tokens[0][0] == largest);
}

TEST_CASE("Generation ends at an end-of-sequence token unless told to go on") {
  const sim::Scenario scenario = tests::generation(tests::small_llama(), 10);
  runtime::GenerateSettings settings = with_prompt({1, 2});
  const std::vector<std::int32_t> all = generate(scenario, settings).tokens[0];
  runtime::ModelSource model = tests::drawn(scenario.model);
  model.tokenizer = bytes_with_end(all[3]);
  const auto first = std::find(all.begin(), all.end(), all[3]) - all.begin();

  const runtime::Generation ended = runtime::generate(scenario, model, settings, {}, {});
  CHECK(ended.tokens[0] == std::vector<std::int32_t>(all.begin(), all.begin() + first + 1));
  CHECK(ended.report.message.empty());
  settings.ignore_eos = true;
  CHECK(runtime::generate(scenario, model, settings, {}, {}).tokens[0] == all);
}

TEST_CASE("Durations of the tokens add up to the generation, and rows are prefill's and decode's") {
  const runtime::Generation g = generate(tests::generation(tests::small_llama(), 6), with_prompt({1, 2, 3}));
  REQUIRE(g.report.tokens.size() == 6);
  double tokens = 0, rows = 0;
  for (const sim::TokenResult& token : g.report.tokens) tokens += token.duration.value;
  std::int64_t prefills = 0, decodes = 0;
  for (const sim::Row& row : g.report.rows) {
    rows += row.duration.value;
    if (row.id == "head.sample") (row.phase == sim::Phase::prefill ? prefills : decodes) += row.count;
  }
  CHECK(tokens == Approx(g.report.step_time.value));
  CHECK(rows <= g.report.step_time.value);
  CHECK(prefills == 1);
  CHECK(decodes == 5);
}

TEST_CASE("A text that is read is judged by softmax over the logits, the same with a KV cache and without") {
  sim::Scenario scenario = tests::generation(tests::small_llama(), 5, 2);
  runtime::GenerateSettings settings = with_prompt({7});
  settings.read = {3, 1, 4, 1, 5};
  scenario.workload.kv_cache = true;
  const runtime::Generation cached = generate(scenario, settings);
  scenario.workload.kv_cache = false;
  const runtime::Generation recomputed = generate(scenario, settings);
  CHECK(cached.tokens[0] == settings.read);
  CHECK(cached.tokens[1] == settings.read);
  REQUIRE(cached.report.tokens.size() == 5);
  for (std::size_t t = 0; t < 5; ++t) {
    // The next token's probability, from the text before it as a prompt.
    runtime::GenerateSettings asked = with_prompt({7});
    asked.prompt.insert(asked.prompt.end(), settings.read.begin(),
                        settings.read.begin() + static_cast<std::ptrdiff_t>(t));
    const std::vector<float> logits =
        generate(tests::generation(tests::small_llama(), 1), asked).first_logits;
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const double expected =
        -std::log(std::exp(static_cast<double>(logits.at(static_cast<std::size_t>(settings.read[t])))) / sum);
    CHECK(cached.report.tokens[t].surprise.value() == Approx(expected).epsilon(1e-4));
    CHECK(recomputed.report.tokens[t].surprise.value() == Approx(expected).epsilon(1e-4));
  }
  double mean = 0;
  for (const sim::TokenResult& token : cached.report.tokens) mean += token.surprise.value() / 5;
  CHECK(sim::perplexity(cached.report).value() == Approx(std::exp(mean)));
  CHECK_FALSE(sim::perplexity(generate(scenario, with_prompt({7})).report).has_value());
  settings.read.pop_back();
  CHECK_THROWS_WITH(generate(scenario, settings),
                    contains("has 4 tokens behind the prompt, and 5 are to be read"));
}

TEST_CASE("A stop request ends a generation after the token in hand") {
  const sim::Scenario scenario = tests::generation(tests::small_llama(), 50);
  std::stop_source stop;
  const runtime::Generation g = runtime::generate(
      scenario, tests::drawn(scenario.model), with_prompt({1}),
      [&](const sim::Event& event) {
        if (const auto* token = std::get_if<sim::TokenResult>(&event); token && token->index == 4)
          stop.request_stop();
      },
      stop.get_token());
  CHECK(g.tokens[0].size() == 5);
  CHECK(g.report.message == "interrupted after 5 of 50 tokens");
}

TEST_CASE("Prompts that the model cannot read are refused by a sentence") {
  const sim::Scenario scenario = tests::generation(tests::small_gpt(), 2);
  CHECK_THROWS_WITH(generate(scenario, with_prompt({})),
                    "the prompt is empty; it must have at least one token");
  CHECK_THROWS_WITH(generate(scenario, with_prompt({1, 256})),
                    "prompt token 256 is not in the vocabulary of small-gpt (0 to 255)");
  CHECK_THROWS_AS(generate(scenario, with_prompt({-1})), runtime::InputError);
}

namespace {

// Rows of whole groups of 32 columns.
sim::Model widened(sim::Model m) {
  m.hidden_size = 64;
  m.intermediate_size = 96;
  return m;
}

}  // namespace

TEST_CASE(
    "Weights in 8 and 4 bits give logits as far off as their steps are, in the memory that was predicted") {
  const sim::Model model = widened(GENERATE(tests::small_llama(), tests::small_gpt()));
  CAPTURE(model.name);
  sim::Scenario scenario = tests::generation(model, 6, 2);
  const runtime::GenerateSettings settings = with_prompt({1, 2, 3, 5, 8});
  scenario.workload.prompt_length = 5;
  const runtime::Generation exact = generate(scenario, settings);
  // Half a step at the largest magnitude of a group, about three times its root mean square; roundings of the
  // layers' products, four each, and of the head's add up as random numbers do.
  constexpr double kPeakToRms = 3;
  const double products = std::sqrt(4.0 * static_cast<double>(scenario.model.num_hidden_layers) + 1);
  const auto parameters = [](const sim::Report& report) {
    std::int64_t bytes = 0;
    for (const sim::MemoryLine& line : report.memory)
      if (line.category == "parameter") bytes += line.bytes.value;
    return bytes;
  };
  std::int64_t with_zeros = 0, without = 0;
  for (const sim::DType type : {sim::DType::int8, sim::DType::int5, sim::DType::int4})
    for (const auto& [group, zeros] : {std::pair{0, true}, {32, true}, {32, false}}) {
      CAPTURE(std::string(sim::name(type)), group, zeros);
      scenario.workload.weights_dtype = scenario.workload.embedding_dtype = type;
      scenario.workload.weights_group = group;
      scenario.workload.weights_zeros = zeros;
      const int codes = 1 << sim::bits(type);
      const double half_step = kPeakToRms / (codes - (zeros && type != sim::DType::int8 ? 1 : 2));
      const runtime::Generation stored = generate(scenario, settings);
      CHECK(distance(stored.first_logits, exact.first_logits) < products * half_step);
      CHECK(stored.first_logits != exact.first_logits);
      CHECK(parameters(stored.report) > 0);
      CHECK(parameters(stored.report) == parameters(sim::predict(scenario)));
      CHECK(parameters(stored.report) < parameters(exact.report) * (sim::bits(type) + 4) / 32);
      if (group == 32 && zeros) with_zeros = parameters(stored.report);
      if (!zeros) CHECK((without = parameters(stored.report)) < with_zeros);
    }
  // What is left in 4 bits decides how far off logits are; the last of the loop has all in 4 bits.
  scenario.workload.qkv_dtype = scenario.workload.down_dtype = sim::DType::int8;
  const runtime::Generation mixed = generate(scenario, settings);
  CHECK(distance(mixed.first_logits, exact.first_logits) < products * kPeakToRms / 14);
  CHECK(parameters(mixed.report) == parameters(sim::predict(scenario)));
  CHECK(parameters(mixed.report) > without);
}

TEST_CASE("A file's codes in 2 to 8 bits, with scales in one or in two levels, give its values' logits") {
  using enum runtime::GgmlType;
  const auto few = GENERATE(q2_k, q3_k, q4_k, q5_k, q6_k, q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl, iq4_xs);
  CAPTURE(runtime::ggml_type_info(few).name);
  // A layer's last product, the embedding and the head have more bits, as in the files of mixtures.
  const runtime::GgmlType more = !runtime::code_format(few).in_blocks ? q8_0 : few == q3_k ? q5_k : q6_k;
  const auto type_of = [&](std::string_view tensor, int layer) {
    return tensor == "token_embd" ? q6_k : tensor == "ffn_down" && layer == 1 ? more : few;
  };
  const TemporaryFolder folder;
  const runtime::ModelSource source =
      runtime::open_model(folder.write("model.gguf", tests::llama_of_types(type_of, q5_k)).string());
  sim::Scenario scenario = tests::generation(source.model, 4);
  const runtime::GenerateSettings settings = with_prompt({1, 2, 3, 5, 7});
  scenario.workload.prompt_length = 5;
  const runtime::Generation values = runtime::generate(scenario, source, settings, {}, {});
  source.stored.set(scenario.workload);
  REQUIRE(scenario.workload.weights_dtype);
  CHECK(scenario.workload.embedding_dtype == sim::DType::q6_k);
  CHECK(scenario.workload.head_dtype == sim::DType::q5_k);
  const runtime::Generation codes = runtime::generate(scenario, source, settings, {}, {});
  // Activations in 16 bits; a scale of Q4_K and of the like is rounded to fp16 where q4_k is not what holds
  // it.
  CHECK(distance(codes.first_logits, values.first_logits) < 1e-3);
  CHECK(codes.first_logits != values.first_logits);
}

TEST_CASE("In bf16, and with a KV cache in bf16, logits are fp32's to the roundings on the way") {
  sim::Scenario scenario = tests::generation(GENERATE(tests::small_gpt(), tests::small_llama()), 4, 2);
  const runtime::GenerateSettings settings = with_prompt({1, 2, 3, 5, 8});
  const runtime::Generation wide = generate(scenario, settings);
  constexpr double kHalfStep = 0x1p-9;
  scenario.workload.kv_dtype = sim::DType::bf16;
  const runtime::Generation cached = generate(scenario, settings);
  CHECK(distance(cached.first_logits, wide.first_logits) < 4 * kHalfStep);
  CHECK(cached.first_logits != wide.first_logits);
  scenario.workload.kv_dtype.reset();
  scenario.workload.dtype = sim::DType::bf16;
  scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  const runtime::Generation narrow = generate(scenario, settings);
  // Some ten tensors a layer.
  CHECK(distance(narrow.first_logits, wide.first_logits) <
        std::sqrt(10.0 * static_cast<double>(scenario.model.num_hidden_layers)) * 2 * kHalfStep);
}

TEST_CASE("Weights in groups that rows are no whole multiples of are refused with what there is") {
  sim::Scenario scenario = tests::generation(widened(tests::small_llama()), 2);
  scenario.workload.weights_dtype = sim::DType::int4;
  scenario.workload.weights_group = 48;
  CHECK_THROWS_WITH(
      generate(scenario, with_prompt({1})),
      "weights in int4 run with workload.weights_group 0 or a multiple of 32, not 48 (0: a scale "
      "for each row)");
  scenario.workload.weights_group = 64;  // of 64 columns, of 96 not
  CHECK_THROWS_WITH(
      generate(scenario, with_prompt({1})),
      Catch::Matchers::Contains("columns, which are no whole groups of workload.weights_group 64"));
}
