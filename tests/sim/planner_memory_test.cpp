#include <cmath>

#include "sim/cost/predict.h"
#include "sim/plan/device_memory.h"
#include "sim/planner/estimate.h"
#include "sim/planner/stage_memory.h"
#include "tests/sim/in_flight.h"
#include "tests/sim/random_strategies.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

// The fullest stage's, as peak_memory() of a prediction, without the rest of it.
Bytes predicted_peak(const Scenario& scenario) {
  const Plan plan = make_plan(scenario);
  Bytes most;
  plan_memory_of_all(plan, Addresses::none, [&](const MemoryPlan& memory) {
    most = std::max(most, device_memory(plan, memory).total());
  });
  return most;
}

double error(const Scenario& s) {
  return std::abs(
      static_cast<double>(estimate(s).memory.value) / static_cast<double>(predicted_peak(s).value) - 1);
}

Scenario training(const char* model, const char* implementation) {
  Scenario s;
  s.model = load_model_preset(model);
  s.hardware = load_hardware_preset("h100-sxm");
  s.implementation = load_implementation_preset(implementation);
  s.workload.seq_len = 4096;
  s.workload.global_batch_size = 64;
  return s;
}

}  // namespace

TEST_CASE("steps of passes add up to the predicted peak wherever parameters and gradients lie") {
  const char* model = GENERATE("llama-3.1-8b", "gemma-2b", "deepseek-moe-16b");
  const int zero_stage = GENERATE(0, 1, 2, 3);
  Scenario s = training(model, "ridgepoint");
  s.strategy.data_parallel = 4;
  s.strategy.tensor_parallel = 2;
  s.strategy.zero_stage = zero_stage;
  s.workload.micro_batch_size = 2;
  for (const Recompute recompute : {Recompute::none, Recompute::full})
    for (const bool is_fresh : {false, true})
      for (const std::int64_t bucket : {0, 1 << 30}) {
        s.strategy.recompute = recompute;
        s.strategy.gradient_bucket = bucket;
        s.implementation.memory.weight_gradient =
            is_fresh ? WeightGradient::fresh : WeightGradient::accumulated;
        CAPTURE(model, zero_stage, name(recompute), is_fresh, bucket);
        CHECK(error(s) < 0.002);
      }
}

TEST_CASE("layers add to a stage's memory what their places say, however many they are") {
  const int layers = GENERATE(1, 2, 3, 5, 9, 14);
  for (const int stages : {1, 2, 3})
    for (const int interval : {1, 2, 3, 4, 7})
      for (const int sequences : {1, 3, 8}) {
        Scenario s = training("llama-3.2-1b", "ridgepoint");
        s.model.num_hidden_layers = layers * stages;
        s.strategy.pipeline_parallel = stages;
        s.strategy.recompute = Recompute::full;
        s.strategy.recompute_interval = interval;
        s.workload.micro_batch_size = sequences;
        s.workload.global_batch_size = sequences * 4;
        CAPTURE(layers, stages, interval, sequences);
        CHECK(estimate(s).memory == predicted_peak(s));
      }
}

TEST_CASE("gradients that begin with the backward pass take no more than those that are there all the time") {
  for (const int micro_batches : {1, 4})
    for (const int zero_stage : {0, 2, 3}) {
      Scenario s = training("llama-3.2-1b", "ridgepoint");
      s.strategy.data_parallel = 8;
      s.strategy.zero_stage = zero_stage;
      s.workload.global_batch_size = 8 * micro_batches;
      const Bytes always = estimate(s).memory;
      s.implementation.memory.weight_gradient = WeightGradient::fresh;
      CAPTURE(micro_batches, zero_stage);
      CHECK(estimate(s).memory <= always);
    }
}

TEST_CASE("parameters that are gathered go one by one, as passes have read them for the last time") {
  // The fullest moment lies in the backward pass over a layer whose last product has been done: its weight is
  // not there any more.
  Scenario s = training("gemma-2b", "ridgepoint");
  s.strategy.data_parallel = 64;
  s.strategy.tensor_parallel = 4;
  s.strategy.zero_stage = 3;
  s.strategy.prefetch = 0;
  s.strategy.recompute = Recompute::full;
  s.strategy.recompute_interval = 3;
  s.workload.seq_len = 1024;
  s.workload.micro_batch_size = 2;
  s.workload.global_batch_size = 64 * 2 * 6;
  CHECK(error(s) < 1e-3);
}

TEST_CASE("what a head gathers for modules that predict further tokens is there as long as it is read") {
  Scenario s = training("deepseek-v3", "ridgepoint");
  s.strategy.data_parallel = 64;
  s.strategy.tensor_parallel = 4;
  s.strategy.expert_parallel = 4;
  s.strategy.sequence_parallel = true;
  s.strategy.pipeline_parallel = 4;
  s.strategy.schedule = "gpipe";
  s.strategy.zero_stage = 3;
  s.strategy.prefetch = 0;
  s.strategy.recompute = Recompute::selective;
  s.workload.micro_batch_size = 2;
  s.workload.global_batch_size = 64 * 2 * 4;
  CHECK(error(s) < 1e-3);
}

TEST_CASE("what a caching allocator reserves is as predicted, and no less than what is live") {
  for (const char* implementation : {"pytorch_eager", "hf_fsdp", "mcore_te_2024"})
    for (const int stages : {1, 4}) {
      Scenario s = training("llama-3.1-8b", implementation);
      s.strategy.data_parallel = 2;
      s.strategy.pipeline_parallel = stages;
      s.workload.global_batch_size = 16;
      const Bytes reserved = reserved_memory(make_plan(s));
      CAPTURE(implementation, stages);
      CHECK(reserved == predicted_peak(s));
      s.implementation.memory.allocator = AllocatorKind::planned;
      CHECK(reserved >= predicted_peak(s));
    }
}

TEST_CASE("micro-batches in flight are the schedule's") {
  const std::string name = GENERATE(std::string("1f1b"), std::string("gpipe"));
  constexpr std::int32_t kStages = 4, kMicroBatches = 12;
  const Schedule schedule = make_schedule(name, kStages, 1, kMicroBatches);
  const StagesInFlight stages = in_flight(schedule, false);
  for (std::int32_t stage = 0; stage < kStages; ++stage) {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < stages.moments.size(); ++i)  // of one chunk each
      if (stages.moments[i].stage == stage)
        most = std::max<std::int64_t>(most, stages.chunks[i].kept + 1);  // with its own
    CHECK(most == tests::most_in_flight(schedule, stage));
  }
}
