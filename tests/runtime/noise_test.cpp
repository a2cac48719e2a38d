#include <cmath>
#include <fstream>

#include "runtime/train.h"
#include "sim/plan/memory.h"
#include "tests/runtime/random_strategy.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

runtime::TrainSettings settings_for(const TemporaryFolder& folder, std::int64_t steps) {
  runtime::TrainSettings settings;
  settings.steps = steps;
  settings.data = tests::write_tokens(folder.path());
  settings.device.threads = 2;
  return settings;
}

sim::Report train(const sim::Scenario& scenario, const runtime::TrainSettings& settings) {
  return runtime::train(scenario, tests::drawn(scenario.model), settings, {}, {});
}

sim::Scenario measuring_noise(const sim::Model& model, std::int64_t micro_batch, std::int64_t global_batch) {
  sim::Scenario scenario = tests::training(model, 16, micro_batch, global_batch);
  scenario.workload.measure_noise = true;
  return scenario;
}

}  // namespace

TEST_CASE("The first micro-batch's gradient norm is that of a run of it alone, step after step") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder, 3);
  settings.learning_rate = 0;  // both runs keep the weights that they begin with
  settings.data_order = runtime::DataOrder::sequential;
  for (const sim::Model& model :
       {tests::small_gpt(), tests::small_llama(), tests::small_hybrid(), tests::small_experts()}) {
    CAPTURE(model.name);
    const sim::Report both = train(measuring_noise(model, 2, 8), settings);
    runtime::TrainSettings settings_alone = settings;
    settings_alone.steps = 9;
    const sim::Report alone = train(tests::training(model, 16, 2, 2), settings_alone);
    for (const std::size_t step : {0, 1, 2}) {
      REQUIRE(both.steps[step].micro_batch_grad_norm);
      CHECK(*both.steps[step].micro_batch_grad_norm == Approx(alone.steps[4 * step].grad_norm).epsilon(1e-5));
    }
  }
}

TEST_CASE("Measuring noise changes no bit of what is learned and takes the planned memory, 8 bytes more") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder, 3);
  const auto held = [](const sim::Report& report) {
    std::int64_t bytes = 0;
    for (const sim::MemoryLine& line : report.memory)
      if (!line.category.starts_with("platform")) bytes += line.bytes.value;
    return bytes;
  };
  sim::Scenario scenario = measuring_noise(GENERATE(tests::small_gpt(), tests::small_llama()), 1, 4);
  scenario.strategy.recompute = GENERATE(sim::Recompute::none, sim::Recompute::full);
  const sim::Report with = train(scenario, settings);
  const sim::Plan plan = sim::make_plan(scenario);
  CHECK(held(with) == sim::plan_memory(plan).arena.value);
  std::int64_t bytes = 0;
  for (const sim::Buffer& buffer : plan.buffers)
    bytes += buffer.view_of == sim::kNoBuffer ? buffer.bytes({}).value : 0;
  scenario.workload.measure_noise = false;
  for (const sim::Buffer& buffer : sim::make_plan(scenario).buffers)
    bytes -= buffer.view_of == sim::kNoBuffer ? buffer.bytes({}).value : 0;
  CHECK(bytes == 8);
  const sim::Report without = train(scenario, settings);
  for (std::size_t step = 0; step < 3; ++step) {
    CHECK(with.steps[step].loss == without.steps[step].loss);
    CHECK(with.steps[step].grad_norm == without.steps[step].grad_norm);
    CHECK_FALSE(without.steps[step].micro_batch_grad_norm);
    CHECK_FALSE(without.steps[step].noise_scale);
  }
}

TEST_CASE("The noise scale of the first step is McCandlish's, in sequences, of the norms before clipping") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder, 1);
  settings.grad_clip = 1e-3f;
  const sim::StepResult step = train(measuring_noise(tests::small_llama(), 2, 8), settings).steps.front();
  REQUIRE(step.micro_batch_grad_norm);
  const double small = std::pow(*step.micro_batch_grad_norm, 2), large = std::pow(step.grad_norm, 2);
  REQUIRE(large > 1e-3);
  const double variance = (small - large) / (1. / 2 - 1. / 8), signal = (8 * large - 2 * small) / (8 - 2);
  REQUIRE(signal > 0);
  REQUIRE(variance > 0);
  REQUIRE(step.noise_scale);
  CHECK(*step.noise_scale == Approx(variance / signal));
}

TEST_CASE("Where all sequences are alike, the micro-batch's gradient is the step's: there is no noise") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder, 2);
  std::ofstream file(settings.data, std::ios::binary);
  for (int i = 0; i < 1025; ++i) {
    const auto token = static_cast<std::uint16_t>(7 * i % 16);
    file.write(reinterpret_cast<const char*>(&token), sizeof token);
  }
  file.close();
  for (const sim::StepResult& step : train(measuring_noise(tests::small_gpt(), 1, 4), settings).steps) {
    REQUIRE(step.micro_batch_grad_norm);
    CHECK(*step.micro_batch_grad_norm == Approx(step.grad_norm).epsilon(1e-5));
    CHECK(step.noise_scale.value_or(0) < 1e-3);
  }
}

TEST_CASE("In fp16 the loss's scale is taken out of the micro-batch's norm") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder, 1);
  sim::Scenario scenario = measuring_noise(tests::small_llama(), 1, 4);
  const sim::Report wide = train(scenario, settings);
  scenario.workload.dtype = sim::DType::fp16;
  scenario.hardware.peak[sim::DType::fp16] = sim::tflops(0.1);
  const sim::Report narrow = train(scenario, settings);
  REQUIRE(narrow.steps.front().micro_batch_grad_norm);
  constexpr double kHalfStep = 0x1p-11;
  CHECK(*narrow.steps.front().micro_batch_grad_norm ==
        Approx(*wide.steps.front().micro_batch_grad_norm).epsilon(16 * kHalfStep));
}
