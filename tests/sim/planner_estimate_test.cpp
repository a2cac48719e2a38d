#include <cmath>

#include "sim/cost/predict.h"
#include "sim/plan/device_memory.h"
#include "sim/plan/legality.h"
#include "sim/plan/schedule.h"
#include "sim/planner/estimate.h"
#include "sim/quantile.h"
#include "tests/sim/random_strategies.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

// The fullest stage's, as peak_memory() of a prediction, without the rest of it.
Bytes predicted_peak(const Plan& plan) {
  Bytes most;
  plan_memory_of_all(plan, Addresses::none, [&](const MemoryPlan& memory) {
    most = std::max(most, device_memory(plan, memory).total());
  });
  return most;
}

}  // namespace

TEST_CASE(
    "estimates are within 0.5 % of predictions in time and memory for every random scenario of all fields, "
    "and rank them alike") {
  RandomStrategies random(20261121);
  std::vector<double> errors, memory_errors, estimated, predicted;
  for (int i = 0; i < 1000; ++i) {
    const Scenario s = random.next();
    const Calibration* calibration = random.calibration(s.hardware.name);
    const Plan plan = make_plan(s);
    const Estimate e = estimate(s, calibration);
    predicted.push_back(predict_step(plan, s.hardware, calibration).seconds.value);
    estimated.push_back(e.step.value);
    errors.push_back(error_of(estimated.back(), predicted.back()));
    memory_errors.push_back(
        error_of(static_cast<double>(e.memory.value), static_cast<double>(predicted_peak(plan).value)));
    INFO(described(s));
    CHECK(errors.back() < 0.005);
    CHECK(memory_errors.back() < 0.005);
  }
  CHECK(quantile(errors, 0.5) < 1e-6);
  CHECK(kendalls_tau(estimated, predicted) > 0.999);
  CHECK(quantile(memory_errors, 0.5) < 1e-6);
}

TEST_CASE("steps of pipelines whose ends have layers of their own are estimated as they are predicted") {
  RandomStrategies random(11);
  std::mt19937_64 layers(12);
  int named = 0;
  for (int i = 0; i < 2000 && named < 60; ++i) {
    Scenario s = random.next();
    const auto even = static_cast<int>(s.model.num_hidden_layers / s.strategy.pipeline_parallel);
    s.strategy.first_stage_layers = static_cast<int>(layers() % static_cast<unsigned>(2 * even + 1));
    s.strategy.last_stage_layers = static_cast<int>(layers() % static_cast<unsigned>(2 * even + 1));
    if (s.strategy.first_stage_layers + s.strategy.last_stage_layers == 0 || !validate(s).empty()) continue;
    ++named;
    const Calibration* calibration = random.calibration(s.hardware.name);
    const Plan plan = make_plan(s);
    const Estimate e = estimate(s, calibration);
    INFO(described(s));
    CHECK(error_of(e.step.value, predict_step(plan, s.hardware, calibration).seconds.value) < 0.005);
    CHECK(error_of(static_cast<double>(e.memory.value), static_cast<double>(predicted_peak(plan).value)) <
          0.005);
  }
  CHECK(named == 60);
}

TEST_CASE("stages that have no gradients to set to zero are estimated as they are predicted") {
  // OLMo's norms learn nothing, and products write all other gradients: only the embedding's begin at zero.
  for (const char* implementation : {"megatron_deepspeed", "mcore_te_2024", "gpt_neox"})
    for (const int stages : {2, 4}) {
      Scenario s;
      s.model = load_model_preset("olmo-1b");
      s.hardware = load_hardware_preset("a100-sxm-80gb");
      s.implementation = load_implementation_preset(implementation);
      s.implementation.runs_here = true;
      s.strategy.pipeline_parallel = stages;
      s.workload.global_batch_size = 8;
      REQUIRE(validate(s).empty());
      INFO(described(s));
      CHECK(error_of(estimate(s, nullptr).step.value,
                     predict_step(make_plan(s), s.hardware, nullptr).seconds.value) < 1e-9);
    }
}

TEST_CASE("a step whose first micro-batch writes gradients is estimated as it is predicted") {
  for (const char* model : {"llama-3.1-8b", "gpt2-124m", "deepseek-v3"}) {
    Scenario s;
    s.model = load_model_preset(model);
    s.model.num_hidden_layers = 8;
    s.hardware = load_hardware_preset("h100-sxm");
    s.implementation = load_implementation_preset("ridgepoint");
    s.workload.seq_len = 1024;
    for (const int data_parallel : {1, 2})
      for (const int tensor_parallel : {1, 2})
        for (const int stages : {1, 2, 4})
          for (const std::string_view name : kScheduleNames)
            for (const int zero : {0, 1, 2, 3})
              for (const std::int64_t micro_batches : {1, 2, 8}) {
                const std::string schedule(name);
                Scenario t = s;
                t.strategy.data_parallel = data_parallel;
                t.strategy.tensor_parallel = tensor_parallel;
                t.strategy.pipeline_parallel = stages;
                t.strategy.schedule = schedule;
                t.strategy.zero_stage = zero;
                t.strategy.virtual_pipeline = placement_of(schedule) == Placement::v ? 2 : 1;
                t.workload.global_batch_size = micro_batches * data_parallel;
                if ((stages == 1 && schedule != "1f1b") || !validate(t).empty()) continue;
                CAPTURE(model, data_parallel, tensor_parallel, stages, schedule, zero, micro_batches);
                const Plan plan = make_plan(t);
                const Estimate e = estimate(t);
                CHECK(error_of(e.step.value, predict_step(plan, t.hardware, nullptr).seconds.value) < 1e-9);
                CHECK(error_of(static_cast<double>(e.memory.value),
                               static_cast<double>(predicted_peak(plan).value)) < 0.005);
              }
  }
}

TEST_CASE("an estimate does not depend on what was estimated before") {
  Scenario s;
  s.model = load_model_preset("llama-3.1-8b");
  s.hardware = load_hardware_preset("h100-sxm");
  s.implementation = load_implementation_preset("mcore_te_2024");
  s.workload.seq_len = 4096;
  s.workload.global_batch_size = 64;
  s.strategy.data_parallel = 4;
  const std::optional<Calibration> calibration = load_calibration_preset("h100-sxm");
  Estimator used(s, &*calibration);
  for (const int zero : {0, 1, 2, 3})
    for (const int stages : {1, 2, 4})
      for (const std::int64_t sequences : {1, 2, 8})
        for (const Recompute recompute : {Recompute::none, Recompute::full, Recompute::sqrt}) {
          Scenario t = s;
          t.strategy.zero_stage = zero;
          t.strategy.pipeline_parallel = stages;
          t.strategy.recompute = recompute;
          t.workload.micro_batch_size = sequences;
          if (!validate(t).empty()) continue;
          const Estimate again = used.estimate(t.strategy, t.workload), alone = estimate(t, &*calibration);
          REQUIRE(again.step == alone.step);
          REQUIRE(again.memory == alone.memory);
        }
}

TEST_CASE("a pipeline's memory does not depend on those that were looked at before") {
  for (const char* model : {"llama-3.1-8b", "deepseek-moe-16b"}) {
    Scenario s;
    s.model = load_model_preset(model);
    s.hardware = load_hardware_preset("h100-sxm");
    s.implementation = load_implementation_preset("ridgepoint");
    s.workload.seq_len = 4096;
    s.workload.global_batch_size = 128;
    for (const WeightGradient gradient : {WeightGradient::accumulated, WeightGradient::fresh}) {
      s.implementation.memory.weight_gradient = gradient;
      Estimator used(s, nullptr);
      for (const int data_parallel : {1, 4})
        for (const int stages : {2, 4})
          for (const int chunks : {1, 2})
            for (const char* schedule : {"1f1b", "zb-h1", "zb-v", "dualpipev"})
              for (const int zero : {0, 2, 3})
                for (const Recompute recompute : {Recompute::none, Recompute::sqrt}) {
                  Scenario t = s;
                  t.strategy.data_parallel = data_parallel;
                  t.strategy.expert_parallel = s.model.has_experts() ? data_parallel : 1;
                  t.strategy.pipeline_parallel = stages;
                  t.strategy.virtual_pipeline = chunks;
                  t.strategy.schedule = schedule;
                  t.strategy.zero_stage = zero;
                  t.strategy.recompute = recompute;
                  if (!validate(t).empty()) continue;
                  CAPTURE(model, data_parallel, stages, chunks, schedule, zero, name(recompute));
                  REQUIRE(used.estimate(t.strategy, t.workload).memory == estimate(t).memory);
                }
    }
  }
}

TEST_CASE("what contradicts itself, or generates, is not estimated") {
  Scenario s;
  s.model = load_model_preset("gpt2-124m");
  s.hardware = load_hardware_preset("h100-sxm");
  s.implementation = load_implementation_preset("ridgepoint");
  s.workload.seq_len = 1024;
  s.strategy.tensor_parallel = 5;
  REQUIRE_THROWS_WITH(estimate(s), Catch::Contains("strategy.tensor_parallel"));
  s.strategy.tensor_parallel = 1;
  s.workload.task = Task::generate;
  REQUIRE_THROWS_WITH(estimate(s), Catch::Contains("workload.task"));
}
