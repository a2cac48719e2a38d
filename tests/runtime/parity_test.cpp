// Against Hugging Face transformers and torch: small models of each family, recorded by
// tests/parity/make_references.py; a hybrid against textbook formulas in double, by make_hybrid_reference.py,
// and under Lion by make_lion_reference.py.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/generate.h"
#include "runtime/train.h"
#include "source_folder.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> fixtures() {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(RIDGEPOINT_SOURCE_DIR) / "tests/parity/fixtures"))
    if (fs::exists(entry.path() / "expected.json")) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

nlohmann::json expected_of(const fs::path& folder) {
  std::ifstream in(folder / "expected.json");
  return nlohmann::json::parse(in);
}

runtime::TrainSettings settings_as_recorded(const fs::path& folder, std::int64_t steps) {
  runtime::TrainSettings settings;
  settings.steps = steps;
  settings.learning_rate = 1e-3f;
  settings.schedule = runtime::LearningRateSchedule::constant;
  settings.weight_decay = 0;
  settings.grad_clip = 0;
  settings.data_order = runtime::DataOrder::sequential;
  settings.data = (folder / "tokens.bin").string();
  return settings;
}

sim::Report train_as_recorded(const fs::path& folder, const runtime::ModelSource& model, std::int64_t steps,
                              double expert_capacity_factor = 0) {
  sim::Scenario scenario = tests::training(model.model, 64, 2, 2);
  scenario.workload.expert_capacity_factor = expert_capacity_factor;
  return runtime::train(scenario, model, settings_as_recorded(folder, steps), {}, {});
}

}  // namespace

TEST_CASE("Losses and gradient norms of ten AdamW steps are transformers' to 1e-4") {
  const std::vector<fs::path> folders = fixtures();
  REQUIRE_FALSE(folders.empty());
  for (const fs::path& folder : folders) {
    INFO(folder.filename());
    const nlohmann::json expected = expected_of(folder).at("training");
    const runtime::ModelSource model = runtime::open_model(folder.string());
    const sim::Report report =
        train_as_recorded(folder, model, static_cast<std::int64_t>(expected.at("losses").size()),
                          expected.value("expert_capacity_factor", 0.0));
    REQUIRE(report.steps.size() == expected.at("losses").size());
    for (std::size_t s = 0; s < report.steps.size(); ++s) {
      CHECK(report.steps[s].loss == Approx(expected.at("losses")[s].get<double>()).epsilon(1e-4));
      CHECK(report.steps[s].grad_norm == Approx(expected.at("grad_norms")[s].get<double>()).epsilon(1e-4));
    }
  }
}

TEST_CASE(
    "Losses of a hybrid of Mamba-2, attention and feed-forward layers are the recurrence's in double to "
    "1e-5") {
  const fs::path folder = fs::path(RIDGEPOINT_SOURCE_DIR) / "tests/parity/fixtures/nemotron-h-numpy";
  const nlohmann::json losses = expected_of(folder).at("training").at("losses");
  const runtime::ModelSource model = runtime::open_model(folder.string());
  CHECK(model.model.is_hybrid());
  const sim::Report report = train_as_recorded(folder, model, static_cast<std::int64_t>(losses.size()));
  REQUIRE(report.steps.size() >= 10);
  for (std::size_t s = 0; s < report.steps.size(); ++s)
    CHECK(report.steps[s].loss == Approx(losses[s].get<double>()).epsilon(1e-5));
}

TEST_CASE("Losses of ten Lion steps are its algorithm's in double to 1e-5") {
  const fs::path folder = fs::path(RIDGEPOINT_SOURCE_DIR) / "tests/parity/fixtures/nemotron-h-numpy";
  std::ifstream in(folder / "lion.json");
  const nlohmann::json losses = nlohmann::json::parse(in).at("losses");
  const runtime::ModelSource model = runtime::open_model(folder.string());
  runtime::TrainSettings settings = settings_as_recorded(folder, static_cast<std::int64_t>(losses.size()));
  settings.learning_rate = 1e-4f;
  settings.beta2 = 0.99f;
  settings.weight_decay = 0.1f;
  sim::Scenario scenario = tests::training(model.model, 64, 2, 2);
  scenario.workload.optimizer = sim::Optimizer::lion;
  const sim::Report report = runtime::train(scenario, model, settings, {}, {});
  REQUIRE(report.steps.size() >= 10);
  for (std::size_t s = 0; s < report.steps.size(); ++s)
    CHECK(report.steps[s].loss == Approx(losses[s].get<double>()).epsilon(1e-5));
}

TEST_CASE(
    "Losses of ten steps of SGD and Adafactor are torch's, of AdamW in 8 bits and Muon their algorithms', to "
    "1e-4") {
  const fs::path folder = fs::path(RIDGEPOINT_SOURCE_DIR) / "tests/parity/fixtures/gpt2-transformers5";
  std::ifstream in(folder / "optimizers.json");
  const nlohmann::json recorded = nlohmann::json::parse(in);
  REQUIRE(recorded.size() == 4);
  const runtime::ModelSource model = runtime::open_model(folder.string());
  for (const auto& [name, of] : recorded.items()) {
    CAPTURE(name);
    const nlohmann::json& as = of.at("settings");
    const std::vector<double> losses = of.at("losses");
    REQUIRE(losses.size() >= 10);
    runtime::TrainSettings settings = settings_as_recorded(folder, static_cast<std::int64_t>(losses.size()));
    settings.learning_rate = as.at("learning_rate");
    settings.beta1 = as.value("beta1", settings.beta1);
    settings.beta2 = as.value("beta2", settings.beta2);
    settings.weight_decay = as.at("weight_decay");
    sim::Scenario scenario = tests::training(model.model, 64, 2, 2);
    scenario.workload.optimizer = sim::from_name<sim::Optimizer>(name).value();
    const sim::Report report = runtime::train(scenario, model, settings, {}, {});
    REQUIRE(report.steps.size() == losses.size());
    for (std::size_t s = 0; s < losses.size(); ++s)
      CHECK(report.steps[s].loss == Approx(losses[s]).epsilon(1e-4));
  }
}

TEST_CASE("Losses and gradient norms of ten LoRA steps are those of textbook formulas in double to 1e-5") {
  const fs::path folder = fs::path(RIDGEPOINT_SOURCE_DIR) / "tests/parity/fixtures/llama-lora-numpy";
  std::ifstream in(folder / "lora.json");
  const nlohmann::json expected = nlohmann::json::parse(in);
  const runtime::ModelSource model = runtime::open_model(folder.string());
  REQUIRE(expected.at("cases").size() >= 3);
  for (const auto& [name, of] : expected.at("cases").items()) {
    const std::size_t steps = of.at("losses").size();
    REQUIRE(steps >= 10);
    sim::Scenario scenario = tests::training(model.model, 64, 2, 2);
    scenario.workload.lora_rank = expected.at("rank");
    scenario.workload.lora_alpha = expected.at("alpha");
    scenario.workload.lora_targets = of.at("targets").get<std::vector<std::string>>();
    for (const sim::Recompute recompute : {sim::Recompute::none, sim::Recompute::full}) {
      CAPTURE(name, sim::name(recompute));
      scenario.strategy.recompute = recompute;
      const sim::Report report = runtime::train(
          scenario, model, settings_as_recorded(folder, static_cast<std::int64_t>(steps)), {}, {});
      REQUIRE(report.steps.size() == steps);
      for (std::size_t s = 0; s < steps; ++s) {
        CHECK(report.steps[s].loss == Approx(of.at("losses")[s].get<double>()).epsilon(1e-5));
        CHECK(report.steps[s].grad_norm == Approx(of.at("grad_norms")[s].get<double>()).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("Greedy tokens are transformers'") {
  for (const fs::path& folder : fixtures()) {
    INFO(folder.filename());
    const nlohmann::json expected = expected_of(folder).at("generation");
    const runtime::ModelSource model = runtime::open_model(folder.string());
    const auto tokens = expected.at("tokens").get<std::vector<std::int32_t>>();
    runtime::GenerateSettings settings;
    settings.prompt = expected.at("prompt").get<std::vector<std::int32_t>>();
    settings.ignore_eos = true;
    sim::Scenario scenario = tests::generation(model.model, static_cast<std::int64_t>(tokens.size()));
    for (const bool kv_cache : {true, false}) {
      scenario.workload.kv_cache = kv_cache;
      CHECK(runtime::generate(scenario, model, settings, {}, {}).tokens[0] == tokens);
    }
  }
}
