// Experts over ranks beside tensor parallelism, as Megatron-Core divides them.
#include "sim/scenario/expert_division.h"

#include <limits>
#include <random>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/plan/ranks.h"
#include "sim/scenario/preset.h"
#include "sim/scenario/scenario_json.h"
#include "tests/sim/random_scenario.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

constexpr int kMostOfAnInt = std::numeric_limits<int>::max();

// NVIDIA-NeMo/Megatron-Bridge, perf_recipes/qwen, qwen3_235b_a22b_pretrain_256gpu_h100_bf16_config.
Scenario qwen_on_256() {
  Scenario s = test::training(load_model_preset("qwen3-235b-a22b"), 4096, 1, 8192);
  s.implementation = load_implementation_preset("mcore_te_2026");
  s.strategy.tensor_parallel = 2;
  s.strategy.pipeline_parallel = 8;
  s.strategy.data_parallel = 16;
  s.strategy.expert_parallel = 32;
  return s;
}

TEST_CASE("degrees that nobody has checked are completed without a product that does not fit") {
  Scenario s = qwen_on_256();
  s.strategy.data_parallel = s.strategy.context_parallel = s.strategy.tensor_parallel = kMostOfAnInt;
  s.strategy.expert_parallel = 7;
  complete_expert_division(s, {});
  // 2^31 - 1 is 1 modulo 7, and so are its products.
  CHECK(s.strategy.expert_tensor_parallel == 0);
  CHECK(s.strategy.devices() == kMostOfAnInt);
  CHECK_FALSE(validate(s).empty());
  CHECK(saturated_product(std::int64_t{1} << 40, std::int64_t{-1} << 40) ==
        std::numeric_limits<std::int64_t>::min());
  CHECK(saturated_product(3, -5, 7) == -105);
}

TEST_CASE("Qwen3-235B on 256 GPUs with tp 2, pp 8 and ep 32 runs with what its recipe leaves open") {
  Scenario s = qwen_on_256();
  complete_expert_division(s, {});
  CHECK(validate(s) == std::vector<Problem>{});
  CHECK(s.strategy.sequence_parallel);
  CHECK(s.strategy.devices_of_expert() == 1);
  // All tensor- and data-parallel ranks of a stage, each of which holds 4 of the 128 experts.
  CHECK(expert_ranks(s.strategy).size == 32);
  s.workload.global_batch_size = 256;
  CHECK(predict(s).step_time.value > 0);
}

TEST_CASE("a scenario's file may leave open how experts lie, and what it says stays") {
  const char* const strategy = R"("tensor_parallel": 2, "pipeline_parallel": 8, "data_parallel": 16,
                                  "expert_parallel": 32)";
  const auto read = [&](const std::string& more) {
    return scenario_from_json(
        R"({"model": "qwen3-235b-a22b", "hardware": "h100-sxm", "implementation": "mcore_te_2026",
            "workload": {"seq_len": 4096, "global_batch_size": 256}, "strategy": {)" +
            std::string(strategy) + more + "}}",
        "s.json");
  };
  CHECK(validate(read("")).empty());
  CHECK_FALSE(validate(read(R"(, "sequence_parallel": false)")).empty());
  CHECK_FALSE(validate(read(R"(, "expert_tensor_parallel": 2)")).empty());
  const Scenario said = read(R"(, "sequence_parallel": false)");
  CHECK(scenario_from_json(to_json(said), "s.json") == said);
}

TEST_CASE("every division of experts over a stage's ranks is legal once completed, and legal ones stay") {
  std::mt19937_64 random(32);
  int completed = 0;
  for (int i = 0; i < 2000; ++i) {
    Scenario s = test::training(test::llama(256, 512, 8, 16, 8, 1000), 128);
    s.model.moe = {.num_experts = 64, .num_experts_per_tok = 2, .moe_intermediate_size = 64};
    Strategy& p = s.strategy;
    p.tensor_parallel = 1 << draw(random, 0, 3);
    p.pipeline_parallel = 1 << draw(random, 0, 2);
    p.data_parallel = 1 << draw(random, 0, 4);
    p.expert_parallel = 1 << draw(random, 0, 6);
    if (p.tensor_parallel * p.data_parallel % p.expert_parallel != 0) continue;
    s.workload.global_batch_size = p.data_parallel * p.pipeline_parallel;
    const Scenario before = s;
    complete_expert_division(s, {});
    CAPTURE(p.tensor_parallel, p.pipeline_parallel, p.data_parallel, p.expert_parallel);
    REQUIRE(validate(s) == std::vector<Problem>{});
    if (validate(before).empty()) REQUIRE(s == before);
    completed += s != before;
  }
  CHECK(completed > 100);
}

}  // namespace
