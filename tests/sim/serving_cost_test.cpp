// Prices of an engine's iterations: laws that hold whatever the tables say, and closed forms.
#include <cmath>
#include <random>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/iteration_cost.h"
#include "sim/cost/static_batch.h"
#include "sim/plan/memory.h"
#include "sim/scenario/preset.h"
#include "sim/serving/engine_limits.h"
#include "sim/serving/speculative.h"
#include "tests/support/catch.h"

using sim::Iteration;
using sim::IterationCost;
using sim::Scenario;

namespace {

Scenario served(const char* model, const char* hardware, const char* engine, int tensor_parallel = 1) {
  Scenario s;
  s.model = sim::load_model_preset(model);
  s.hardware = sim::load_hardware_preset(hardware);
  s.implementation = sim::load_implementation_preset(engine);
  s.workload.task = sim::Task::generate;
  s.strategy.tensor_parallel = tensor_parallel;
  return s;
}

Iteration decoding(double sequences, double context) {
  return {.decode_sequences = sequences, .decode_context = context, .prompts = {}};
}

double milliseconds(const sim::CostBreakdown& cost) {
  return cost.total().value * 1e3;
}

}  // namespace

TEST_CASE("a decode step never takes less time for a larger batch or a longer context") {
  struct Case {
    const char *model, *hardware, *engine;
    int tensor_parallel;
  };
  const Case c = GENERATE(Case{"llama-3.1-8b", "h100-sxm", "vllm_0.14", 1},
                          Case{"llama-2-70b", "a100-sxm-80gb", "gpt_fast", 8},
                          Case{"llama-2-7b", "a100-sxm-80gb", "fastertransformer", 2},
                          Case{"llama-3.1-70b", "h200-sxm", "tensorrt_llm_1.0", 4},
                          Case{"mixtral-8x7b", "h100-sxm", "sglang_0.4", 2});
  CAPTURE(c.model, c.engine);
  const auto calibration = sim::load_calibration_preset(c.hardware);
  const IterationCost cost(served(c.model, c.hardware, c.engine, c.tensor_parallel), &*calibration);
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> batch(0, 8), length(3, 14);
  for (int i = 0; i < 300; ++i) {
    const double n = std::floor(std::exp2(batch(random))), context = std::exp2(length(random));
    const double more = std::floor(n * (1 + batch(random))), longer = context * (1 + batch(random));
    CAPTURE(n, more, context, longer);
    CHECK(milliseconds(cost.iteration(decoding(more, context))) >=
          milliseconds(cost.iteration(decoding(n, context))) * (1 - 1e-12));
    CHECK(milliseconds(cost.iteration(decoding(n, longer))) >=
          milliseconds(cost.iteration(decoding(n, context))) * (1 - 1e-12));
  }
}

TEST_CASE(
    "a step whose experts have no place for any row takes a time, and no longer than one that has places") {
  Scenario s = served("mixtral-8x7b", "h100-sxm", "vllm_0.14", 2);
  s.workload.expert_capacity_factor = 0.1;  // of 2 rows among 8 experts
  const double without = milliseconds(IterationCost(s, nullptr).iteration(decoding(1, 256)));
  CHECK(without > 0);
  s.workload.expert_capacity_factor = 8;
  CHECK(without < milliseconds(IterationCost(s, nullptr).iteration(decoding(1, 256))));
}

TEST_CASE("no decode step is faster than its weights and its cache can be read") {
  const auto calibration = sim::load_calibration_preset("h100-sxm");
  const Scenario s = served("llama-3.1-8b", "h100-sxm", "vllm_0.14");
  const IterationCost cost(s, &*calibration);
  const sim::ParameterCount n = sim::count_parameters(s.model);
  for (const double sequences : {1.0, 16.0, 200.0})
    for (const double context : {100.0, 1000.0, 8000.0}) {
      const double cache = 2.0 * 32 * 8 * 128 * 2 * sequences * context;
      const double bytes = 2.0 * static_cast<double>(n.total - n.embedding) + cache;
      CHECK(cost.iteration(decoding(sequences, context)).total().value >
            bytes / s.hardware.memory_bandwidth.value);
    }
}

TEST_CASE("weights and KV cache over the ranks add up to the whole") {
  const char* const model = GENERATE("llama-3.1-8b", "llama-2-70b");
  Scenario s = served(model, "h100-sxm", "vllm_0.14");
  s.hardware.memory = sim::gib(1000);
  const sim::EngineMemory whole = sim::engine_memory(s);
  for (const int ranks : {2, 4, 8}) {
    s.strategy.tensor_parallel = ranks;
    const sim::EngineMemory part = sim::engine_memory(s);
    CHECK(part.cache_of_token * ranks == Approx(whole.cache_of_token));
    // Norms are every rank's; the vocabulary may be padded.
    const double norms =
        static_cast<double>(2 * s.model.num_hidden_layers + 1) * 2 * static_cast<double>(s.model.hidden_size);
    CHECK(static_cast<double>(part.weights.value) * ranks ==
          Approx(static_cast<double>(whole.weights.value) + (ranks - 1) * norms).epsilon(1e-6));
  }
  // Llama 3.1 8B: 2 x 32 layers x 8 heads x 128 x 2 bytes = 128 KiB; Llama 2 70B: 2 x 80 x 8 x 128 x 2 = 320
  // KiB.
  CHECK(whole.cache_of_token == (std::string(model) == "llama-3.1-8b" ? 131072 : 327680));
}

TEST_CASE("narrower weights and caches take their share of the memory") {
  Scenario s = served("llama-3.1-8b", "h100-sxm", "vllm_0.14");
  const sim::EngineMemory wide = sim::engine_memory(s);
  s.workload.weights_dtype = sim::DType::fp8;
  s.workload.kv_dtype = sim::DType::fp8;
  const sim::EngineMemory narrow = sim::engine_memory(s);
  CHECK(narrow.cache_of_token * 2 == Approx(wide.cache_of_token));
  // 6.98e9 weights of layers lose a byte each; embedding, head and norms do not.
  CHECK(static_cast<double>(wide.weights.value - narrow.weights.value) == Approx(6.979e9).epsilon(1e-3));
  // int4 with a scale and a zero for 32 weights: 5 bits each.
  s.workload.weights_dtype = sim::DType::int4;
  s.workload.weights_group = 32;
  CHECK(static_cast<double>(wide.weights.value - sim::engine_memory(s).weights.value) ==
        Approx(6.979e9 * 11 / 8).epsilon(1e-3));
}

TEST_CASE("tokens that speculation yields: the closed form is what independent acceptance does") {
  const double acceptance = GENERATE(0.0, 0.3, 0.7, 0.9, 1.0);
  const std::int64_t length = GENERATE(1, 4, 8);
  std::mt19937_64 random(4);
  std::bernoulli_distribution accepted(acceptance);
  constexpr int kRounds = 200'000;
  double tokens = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t kept = 0;
    while (kept < length && accepted(random)) ++kept;
    tokens += static_cast<double>(kept + 1);
  }
  // Standard error of the mean of numbers up to length + 1, four of them.
  const double margin = 4 * static_cast<double>(length) / std::sqrt(kRounds);
  CHECK(sim::expected_tokens(acceptance, length) == Approx(tokens / kRounds).margin(margin));
}

TEST_CASE("speculation's worth: Leviathan et al. 2023, and DeepSeek-V3's second token") {
  // Table 1 of arXiv 2211.17192: at alpha 0.8, gamma 5 a speed-up of 3.69 / (5 c + 1).
  CHECK(sim::speculative_speedup(0.8, 5, 0, 1) == Approx(3.69).epsilon(1e-3));
  CHECK(sim::speculative_speedup(0.8, 5, 0.05, 1) == Approx(3.69 / 1.25).epsilon(1e-3));
  // A second token accepted 85 to 90 % of the time yields 1.85 to 1.9 a step (arXiv 2412.19437,
  // section 5.4.3).
  CHECK(sim::expected_tokens(0.85, 1) == Approx(1.85));
}

TEST_CASE("speculation pays for one sequence, and no longer for a batch that fills the chip") {
  const auto calibration = sim::load_calibration_preset("h100-sxm");
  const IterationCost target(served("llama-3.1-8b", "h100-sxm", "vllm_0.14"), &*calibration);
  const IterationCost draft(served("llama-3.2-1b", "h100-sxm", "vllm_0.14"), &*calibration);
  const auto speedup = [&](double sequences, double context, double acceptance, std::int64_t length) {
    const sim::Iteration one{.decode_sequences = sequences, .decode_context = context, .prompts = {}};
    sim::Iteration several = one;
    several.decode_tokens = static_cast<double>(length + 1);
    const sim::Seconds plain = target.iteration(one).total();
    return sim::speculative_speedup(acceptance, length, draft.iteration(one).total() / plain,
                                    target.iteration(several).total() / plain);
  };
  CHECK(speedup(512, 500, 0.6, 5) < 1);
  CHECK(speedup(1, 1000, 0.8, 4) > 1.4);
}

TEST_CASE("FasterTransformer's micro-batches: divided by the stages once, then halved") {
  // nccl_utils.cc, getLocalBatchSize, at three stages: a batch that 3 does not divide stays whole.
  CHECK(sim::pipeline_micro_batches(16, 1, 3, 1024) == 1);
  CHECK(sim::pipeline_micro_batches(12, 1, 3, 1024) == 3);
  CHECK(sim::pipeline_micro_batches(12, 512, 3, 1024) == 6);   // 4 sequences of 512 are halved to 2
  CHECK(sim::pipeline_micro_batches(256, 60, 2, 1024) == 16);  // 128, 64, 32, 16 sequences of 60
  CHECK(sim::pipeline_micro_batches(8, 100, 1, 1024) == 1);
}

TEST_CASE("pipeline stages without micro-batches take as long as no stages, and what they send") {
  const auto calibration = sim::load_calibration_preset("a100-sxm-80gb");
  Scenario s = served("llama-2-7b", "a100-sxm-80gb", "fastertransformer");
  s.workload.batch_size = 1;
  s.workload.prompt_length = 64;
  s.workload.max_new_tokens = 16;
  const IterationCost cost(s, &*calibration);
  const auto alone = static_batch_times(cost, s);
  s.strategy.pipeline_parallel = 2;
  const auto staged = static_batch_times(cost, s);
  CHECK(staged.later_token.total() > alone.later_token.total());
  CHECK(staged.later_token.total().value < 1.2 * alone.later_token.total().value);
}

TEST_CASE("trtllm-bench's limits are its formula's") {
  // NVIDIA/TensorRT-LLM bench/build/tuning.py, by hand for Llama 3.1 8B in fp8 on H100, 128 and 2048 tokens:
  // 0.95 (80 GiB - 8.03 GB) / 64 KiB a token / 2176 tokens = 518.7 requests, rounded up to 640; tokens 518.7
  // (1 + 128 / 2048) = 551, at least 2048.
  Scenario s = served("llama-3.1-8b", "h100-sxm", "tensorrt_llm_1.0");
  s.workload.weights_dtype = s.workload.kv_dtype = sim::DType::fp8;
  s.workload.prompt_length = 128;
  s.workload.max_new_tokens = 2048;
  const sim::SchedulerLimits limits = sim::engine_limits(s);
  CHECK(limits.max_sequences == 640);
  CHECK(limits.max_tokens == 2048);
  CHECK(limits.reserves_output);
  s.workload.prompt_length = 500'000;
  s.workload.max_new_tokens = 1'000'000;
  CHECK_THROWS_WITH(sim::engine_limits(s), contains("does not fit beside the weights"));
}
