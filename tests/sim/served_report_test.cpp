// Reports of generations by inference engines: rows are the engine's, and add up to its times.
#include <random>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/cost/static_batch.h"
#include "sim/plan/legality.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

template <class T>
const T& one_of(const std::vector<T>& values, std::mt19937_64& random) {
  return values[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
}

std::vector<Implementation> engines() {
  std::vector<Implementation> found;
  for (const std::string& name : preset_names(PresetKind::implementation))
    if (Implementation i = load_implementation_preset(name); i.serving) found.push_back(std::move(i));
  return found;
}

// Dense and expert models, latent attention, windows; types, parallelism and lengths at random; legal.
Scenario random_served(std::mt19937_64& random, const Implementation& engine) {
  static const std::vector<std::string> kModels{"llama-3.1-8b", "llama-2-7b",       "mixtral-8x7b",
                                                "gpt-oss-20b",  "deepseek-v2-lite", "gpt2-124m"};
  static const std::vector<std::string> kHardware{"h100-sxm", "a100-sxm-80gb", "h200-sxm", "mi300x"};
  for (;;) {
    Scenario s;
    s.model = load_model_preset(one_of(kModels, random));
    s.hardware = load_hardware_preset(one_of(kHardware, random));
    s.implementation = engine;
    Workload& w = s.workload;
    w.task = Task::generate;
    w.dtype = one_of<DType>({DType::bf16, DType::fp16, DType::fp8}, random);
    w.weights_dtype =
        one_of<std::optional<DType>>({std::nullopt, DType::int8, DType::int4, DType::fp8}, random);
    w.kv_dtype = one_of<std::optional<DType>>({std::nullopt, std::nullopt, DType::fp8}, random);
    w.kv_cache = one_of<int>({1, 1, 1, 0}, random) != 0;
    w.batch_size = one_of<std::int64_t>({1, 3, 16, 100}, random);
    w.prompt_length = one_of<std::int64_t>({1, 2, 17, 512}, random);
    w.max_new_tokens = one_of<std::int64_t>({1, 2, 30, 300}, random);
    s.strategy.tensor_parallel = one_of<int>({1, 2, 4}, random);
    if (s.model.has_experts() && s.strategy.tensor_parallel == 1)
      s.strategy.expert_parallel = s.strategy.data_parallel = one_of<int>({1, 2, 8}, random);
    if (validate(s).empty()) return s;
  }
}

double sum_of(const std::vector<Row>& rows) {
  double sum = 0;
  for (const Row& row : rows) sum += row.duration.value;
  return sum;
}

double sum_of(const std::vector<Row>& rows, Phase phase) {
  double sum = 0;
  for (const Row& row : rows)
    if (row.phase == phase) sum += row.duration.value;
  return sum;
}

}  // namespace

TEST_CASE("rows of a served report add up to the whole, to its tokens, and to the engine's times") {
  std::mt19937_64 random(5);
  for (const Implementation& engine : engines())
    for (int i = 0; i < 12; ++i) {
      Scenario s = random_served(random, engine);
      const auto calibration = load_calibration_preset(s.hardware.name);
      const Calibration* const tables = calibration && i % 4 > 0 ? &*calibration : nullptr;
      CAPTURE(engine.name, i, s.model.name, s.hardware.name, s.strategy.tensor_parallel);
      Report report = predict(s, tables);
      const int stages = one_of<int>({1, 1, 2, 4}, random);
      if (stages > 1) {
        report.source.scenario.strategy.pipeline_parallel = s.strategy.pipeline_parallel = stages;
        set_engine_results(tables, report);
      }
      const StaticBatchTimes times = static_batch_times(IterationCost(s, tables), s);
      CHECK(report.step_time == times.total.total());
      CHECK(sum_of(report.rows) == Approx(report.step_time.value).epsilon(1e-9));
      CHECK(report.tokens.front().duration == times.first_token.total());
      double tokens = engine.serving->request_overhead.value;
      for (const TokenResult& token : report.tokens) tokens += token.duration.value;
      CHECK(tokens == Approx(report.step_time.value).epsilon(1e-9));
      const double more = static_cast<double>(s.workload.max_new_tokens - 1);
      CHECK(sum_of(report.rows, Phase::decode) ==
            Approx(times.later_token.total().value * more).epsilon(1e-9));
      for (const Row& row : report.rows) {
        CAPTURE(row.id);
        CHECK((row.low <= row.duration && row.duration <= row.high));
      }
    }
}

TEST_CASE("rows of an iteration that mixes prompts and decoding add up to its time") {
  std::mt19937_64 random(6);
  std::uniform_real_distribution<double> size(0, 1);
  for (const Implementation& engine : engines()) {
    const Scenario s = random_served(random, engine);
    CAPTURE(engine.name, s.model.name);
    const IterationCost cost(s, nullptr);
    for (int i = 0; i < 20; ++i) {
      Iteration iteration{.decode_sequences = std::floor(200 * size(random)),
                          .decode_context = 1 + 5000 * size(random),
                          .prompts = {}};
      for (int p = i % 3; p > 0; --p)
        iteration.prompts.push_back({.sequences = std::ceil(4 * size(random)),
                                     .tokens = std::ceil(900 * size(random)),
                                     .context = std::ceil(3000 * size(random)),
                                     .last = p == 1});
      EngineRows rows(Phase::decode);
      cost.add_rows(cost.whole(iteration), 1, rows);
      CHECK(sum_of(rows.take({})) == Approx(cost.iteration(iteration).total().value).epsilon(1e-9));
    }
  }
}

TEST_CASE("an engine's rows do the work of the plan: FLOPs are those of its operations") {
  // Prompts are priced whole, and decoding is linear in the cache.
  const char* const model = GENERATE("llama-3.1-8b", "mixtral-8x7b");
  Scenario s;
  s.model = load_model_preset(model);
  s.hardware = load_hardware_preset("h100-sxm");
  s.workload.task = Task::generate;
  s.workload.batch_size = 4;
  s.workload.prompt_length = 700;
  s.workload.max_new_tokens = 200;
  const auto flops = [&](const char* engine) {
    s.implementation = load_implementation_preset(engine);
    double sum = 0;
    for (const Row& row : predict(s).rows) sum += row.model_flops.value;
    return sum;
  };
  CHECK(flops("vllm_0.14") == Approx(flops("ridgepoint")).epsilon(1e-3));
}
