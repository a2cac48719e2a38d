// What no report may say, whatever the scenario: a share above the whole, more useful work than was executed,
// numbers below zero, rows that do not add up.
#include <cmath>
#include <random>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"
#include "sim/scenario/preset.h"
#include "tests/sim/random_scenario.h"
#include "tests/support/catch.h"

using sim::FlopsConvention;

namespace {

constexpr double kWhole = 1 + 1e-9;

// Models and devices that exist, under strategies and workloads drawn at random; empty where they contradict.
struct Drawn {
  std::mt19937_64 random;

  template <class T>
  const T& any(const std::vector<T>& of) {
    return of[static_cast<std::size_t>(draw(random, 0, std::ssize(of) - 1))];
  }
  sim::Scenario scenario(sim::Task task) {
    static const std::vector<std::string> models = {
        "gpt2-124m",   "llama-3.1-8b",  "llama-3.1-70b", "mixtral-8x7b",  "olmo-3-7b",   "gpt-oss-20b",
        "deepseek-v3", "qwen3-30b-a3b", "llama-4-scout", "nemotron-h-8b", "smollm2-135m"};
    static const std::vector<std::string> hardware = {"a100-sxm-80gb", "h100-sxm", "h200-sxm"};
    static const std::vector<std::string> trained = {"ridgepoint", "ideal", "megatron_2022", "pytorch_eager",
                                                     "torchtitan_2025"};
    static const std::vector<std::string> served = {"ridgepoint", "ideal", "vllm_0.14", "tensorrt_llm_1.0",
                                                    "gpt_fast"};
    sim::Scenario s;
    s.model = sim::load_model_preset(any(models));
    s.hardware = sim::load_hardware_preset(any(hardware));
    s.implementation = sim::load_implementation_preset(any(task == sim::Task::train ? trained : served));
    sim::Workload& w = s.workload;
    sim::Strategy& strategy = s.strategy;
    w.task = task;
    w.dtype = sim::DType::bf16;
    const auto power = [&](int least, int most) { return std::int64_t{1} << draw(random, least, most); };
    strategy.tensor_parallel = static_cast<int>(power(0, 3));
    if (task == sim::Task::train) {
      w.seq_len = power(9, 15);
      w.micro_batch_size = power(0, 2);
      strategy.data_parallel = static_cast<int>(power(0, 3));
      strategy.pipeline_parallel = static_cast<int>(power(0, 2));
      strategy.context_parallel = static_cast<int>(power(0, 1));
      strategy.zero_stage = static_cast<int>(draw(random, 0, 3));
      strategy.sequence_parallel = draw(random, 0, 1) && strategy.tensor_parallel > 1;
      strategy.recompute = static_cast<sim::Recompute>(draw(random, 0, 3));
      w.global_batch_size = w.micro_batch_size * strategy.data_parallel * power(0, 4);
      if (s.model.has_experts() && draw(random, 0, 1))
        strategy.expert_parallel = static_cast<int>(power(0, 3));
    } else {
      w.batch_size = power(0, 7);
      w.prompt_length = power(5, 14);
      w.max_new_tokens = power(1, 8);
      const std::vector<std::optional<sim::DType>> types = {
          std::nullopt,     std::nullopt,     sim::DType::fp8, sim::DType::int8,
          sim::DType::int4, sim::DType::q4_k, sim::DType::q6_k};
      w.weights_dtype = any(types);
      if (w.weights_dtype == sim::DType::int4) w.weights_group = 128;
      if (draw(random, 0, 2) == 0) w.kv_dtype = sim::DType::fp8;
      w.kv_cache = draw(random, 0, 7) != 0;
    }
    return s;
  }
};

void check_report(const sim::Report& r) {
  const sim::Scenario& s = r.source.scenario;
  CHECK(sim::step_time(r).value > 0);
  CHECK(r.step_low <= r.step_time);
  CHECK(r.step_time <= r.step_high);
  CHECK(sim::hfu(r) >= 0);
  // Engines multiply weights of 8 bits in 8 bits, whose peak is above the workload's type's.
  if (!s.workload.weights_dtype) CHECK(sim::hfu(r) <= kWhole);
  double shares = 0;
  for (const sim::PartShare& share : sim::part_shares(r)) {
    CHECK(share.share >= 0);
    shares += share.share;
  }
  CHECK(shares == Approx(1));
  for (const sim::Row& row : r.rows) {
    INFO(name(row.phase) << ' ' << row.id);
    CHECK(row.count > 0);
    CHECK(row.duration.value >= 0);
    CHECK(row.flops.value >= 0);
    CHECK(row.memory.value >= 0);
    CHECK(row.network.value >= 0);
    // What collectives move is bounded by links, and what fits the last-level cache by that.
    const bool of_memory = row.network.value == 0 && row.bound != sim::Bound::host &&
                           row.memory.value > row.count * s.hardware.last_level_cache.value;
    if (of_memory && row.duration.value > 0)
      CHECK(static_cast<double>(row.memory.value) <=
            kWhole * row.duration.value * s.hardware.memory_bandwidth.value);
  }
  for (const sim::MemoryLine& line : r.memory) CHECK(line.bytes.value >= 0);
  if (s.workload.task == sim::Task::train) {
    CHECK(sim::mfu(r, FlopsConvention::six_n) <= kWhole * sim::mfu(r, FlopsConvention::six_n_causal));
    CHECK(sim::mfu(r, FlopsConvention::six_n_causal) <= kWhole * sim::hfu(r));
  } else {
    CHECK(sim::mbu(r) >= 0);
    CHECK(sim::mbu(r) <= kWhole);
    CHECK(sim::ttft(r)->value > 0);
  }
}

void check_scenarios(sim::Task task, int wanted, std::uint64_t seed) {
  Drawn drawn{std::mt19937_64(seed)};
  int checked = 0;
  for (int tries = 0; checked < wanted && tries < 40 * wanted; ++tries) {
    const sim::Scenario s = drawn.scenario(task);
    if (!sim::validate(s).empty()) continue;
    INFO(sim::to_json(s));
    check_report(sim::predict(s));
    ++checked;
  }
  CHECK(checked == wanted);
}

}  // namespace

TEST_CASE("no share of a training step is above the whole, and MFU is at most HFU") {
  check_scenarios(sim::Task::train, 500, 71);
}
TEST_CASE("no share of a generation is above the whole, whoever serves it and however it is stored") {
  check_scenarios(sim::Task::generate, 500, 72);
}
