// fp16, and bf16 where no kernel of its own is: operands widened for the kernels of fp32, the loss scaled.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/generate.h"
#include "runtime/train.h"
#include "tests/runtime/random_strategy.h"
#include "tests/runtime/short_training.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

namespace fs = std::filesystem;

runtime::TrainSettings settings_for(const TemporaryFolder& folder, std::int64_t steps) {
  return tests::short_training(folder, steps, 1e-2f, 1);
}

using tests::train;

sim::Scenario in(sim::DType type, sim::Scenario scenario) {
  scenario.workload.dtype = type;
  scenario.hardware.peak[type] = sim::tflops(0.1);
  return scenario;
}

// Half of the largest relative error of rounding to nearest.
double half_step(sim::DType type) {
  return type == sim::DType::bf16 ? 0x1p-9 : 0x1p-12;
}

nlohmann::json read_index(const fs::path& folder) {
  std::ifstream file(folder / "model.safetensors.index.json");
  return nlohmann::json::parse(file);
}

void write_index(const fs::path& folder, const nlohmann::json& index) {
  std::ofstream(folder / "model.safetensors.index.json") << index.dump(1);
}

// The parameters that a checkpoint holds.
std::string bytes_of_parameters(const fs::path& folder) {
  const std::string name = read_index(folder).at("weight_map").begin().value();
  std::ifstream file(folder / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("In 16 bits the first loss is fp32's to the roundings on the way, of every sort of layer") {
  const TemporaryFolder folder;
  const sim::DType type = GENERATE(sim::DType::fp16, sim::DType::bf16);
  const sim::Scenario scenario = tests::training(
      GENERATE(tests::small_gpt(), tests::small_llama(), tests::small_experts(), tests::small_hybrid()));
  CAPTURE(scenario.model.name, sim::name(type));
  const runtime::TrainSettings settings = settings_for(folder, 2);
  const sim::Report wide = train(scenario, settings), narrow = train(in(type, scenario), settings);
  CHECK(narrow.steps.front().loss == Approx(wide.steps.front().loss).epsilon(half_step(type)));
  CHECK(narrow.steps.front().loss != wide.steps.front().loss);
  CHECK(narrow.steps.front().grad_norm == Approx(wide.steps.front().grad_norm).epsilon(16 * half_step(type)));
}

TEST_CASE("Training in fp16 lowers the loss as far as fp32, with every optimizer") {
  const TemporaryFolder folder;
  const sim::Optimizer optimizer =
      GENERATE(sim::Optimizer::adamw, sim::Optimizer::sgd, sim::Optimizer::lion, sim::Optimizer::muon);
  CAPTURE(sim::name(optimizer));
  sim::Scenario scenario = tests::training(tests::small_llama());
  scenario.workload.optimizer = optimizer;
  runtime::TrainSettings settings = settings_for(folder, 30);
  settings.learning_rate = optimizer == sim::Optimizer::sgd ? 0.3f : 3e-3f;
  const double wide = train(scenario, settings).steps.back().loss;
  const double narrow = train(in(sim::DType::fp16, scenario), settings).steps.back().loss;
  const double guessing = std::log(static_cast<double>(scenario.model.vocab_size));
  CHECK(wide < guessing - 0.05);
  CHECK(guessing - narrow > 0.9 * (guessing - wide));
}

TEST_CASE("A step in fp16 whose gradients overflow changes nothing, and the next has half the scale") {
  const TemporaryFolder folder;
  const sim::Scenario scenario = in(sim::DType::fp16, tests::training(tests::small_llama()));
  runtime::TrainSettings settings = settings_for(folder, 2);
  settings.checkpoint = (folder.path() / "checkpoint").string();
  train(scenario, settings);
  nlohmann::json index = read_index(settings.checkpoint);
  CHECK(index.at("metadata").at("loss_scale") == 65536.0);
  CHECK(index.at("metadata").at("skipped_steps") == 0);
  const std::string before = bytes_of_parameters(settings.checkpoint);

  constexpr double kTooLarge = 0x1p40;  // beyond 65,504 after every division by the tokens
  index.at("metadata").at("loss_scale") = kTooLarge;
  write_index(settings.checkpoint, index);
  settings.resume = true;
  settings.steps = 3;
  const sim::Report skipped = train(scenario, settings);
  CHECK(std::isfinite(skipped.steps.back().loss));
  index = read_index(settings.checkpoint);
  CHECK(index.at("metadata").at("loss_scale") == kTooLarge / 2);
  CHECK(index.at("metadata").at("skipped_steps") == 1);
  CHECK(bytes_of_parameters(settings.checkpoint) == before);

  // The last of 2000 steps without an overflow doubles the scale.
  index.at("metadata").at("loss_scale") = 1024.0;
  index.at("metadata").at("loss_scale_steps") = 1999;
  write_index(settings.checkpoint, index);
  settings.steps = 4;
  train(scenario, settings);
  index = read_index(settings.checkpoint);
  CHECK(index.at("metadata").at("loss_scale") == 2048.0);
  CHECK(bytes_of_parameters(settings.checkpoint) != before);
}

TEST_CASE("A run in fp16 that stops and resumes gives the losses of one that does not") {
  const TemporaryFolder folder;
  const sim::Scenario scenario = in(sim::DType::fp16, tests::training(tests::small_llama()));
  runtime::TrainSettings settings = settings_for(folder, 6);
  settings.schedule = runtime::LearningRateSchedule::constant;
  const sim::Report whole = train(scenario, settings);
  settings.checkpoint = (folder.path() / "checkpoint").string();
  settings.steps = 3;
  train(scenario, settings);
  settings.resume = true;
  settings.steps = 6;
  const sim::Report second = train(scenario, settings);
  REQUIRE(second.steps.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(second.steps[i].loss == whole.steps[3 + i].loss);
}

TEST_CASE("Generating in fp16, and in bf16 from weights in int8, gives fp32's logits to the roundings") {
  const sim::Model model = GENERATE(tests::small_gpt(), tests::small_experts());
  sim::Scenario scenario = tests::generation(model, 4, 2);
  runtime::GenerateSettings settings;
  settings.prompt = {1, 2, 3, 5, 8};
  settings.device.threads = 1;
  const auto logits = [&](const sim::Scenario& s) {
    return runtime::generate(s, tests::drawn(model), settings, {}, {}).first_logits;
  };
  const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
    double squares = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      squares += std::pow(static_cast<double>(a[i]) - b[i], 2);
      size += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(squares / size);
  };
  // Some ten tensors a layer.
  const double roundings = std::sqrt(10.0 * static_cast<double>(model.num_hidden_layers)) * 2;
  CHECK(distance(logits(in(sim::DType::fp16, scenario)), logits(scenario)) <
        roundings * half_step(sim::DType::fp16));
  if (model.has_experts()) return;
  scenario.workload.weights_dtype = sim::DType::int8;
  CHECK(distance(logits(in(sim::DType::bf16, scenario)), logits(scenario)) <
        roundings * half_step(sim::DType::bf16));
}
