// Every model preset, shrunk, runs on the CPU. What cannot is in a list with its reason, and the list can
// only shrink: what stands there and runs fails the test.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include "runtime/error.h"
#include "runtime/generate.h"
#include "runtime/train.h"
#include "tests/runtime/shrunk_model.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

// Words of the refusal, by preset.
using Reasons = std::map<std::string, std::string_view, std::less<>>;

const Reasons kNotTrained = {};
const Reasons kNotGenerated = {};

// Runs every preset's model; those that differ in size alone are one when shrunk, and run once.
void check_all(const Reasons& reasons, const auto& run) {
  std::map<std::string, std::string> refusals;  // by the shrunk model; empty where it ran
  for (const std::string& preset : sim::preset_names(sim::PresetKind::model)) {
    CAPTURE(preset);
    const sim::Model model = tests::shrunk(sim::load_model_preset(preset));
    const auto [refusal, is_new] = refusals.try_emplace(sim::to_json(model));
    if (is_new) {
      try {
        run(model);
      } catch (const runtime::NoDevice& refused) {
        refusal->second = refused.what();
      }
    }
    const auto listed = reasons.find(preset);
    if (listed == reasons.end())
      CHECK(refusal->second == "");
    else
      CHECK(refusal->second.find(listed->second) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("Every model preset, shrunk, trains three steps on the CPU but those listed with their reason") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings;
  settings.steps = 3;
  settings.data = tests::write_tokens(folder.path());
  settings.device.threads = 1;
  check_all(kNotTrained, [&](const sim::Model& model) {
    const sim::Report report =
        runtime::train(tests::training(model, 24, 2, 2), tests::drawn(model), settings, {}, {});
    REQUIRE(report.steps.size() == 3);
    for (const sim::StepResult& step : report.steps) {
      CHECK(std::isfinite(step.loss));
      CHECK(step.grad_norm > 0);
    }
  });
}

TEST_CASE("Every model preset, shrunk, generates the same eight tokens with a KV cache and without") {
  runtime::GenerateSettings settings;
  settings.prompt = {1, 2, 3, 4, 5, 6};
  settings.ignore_eos = true;
  settings.device.threads = 1;
  check_all(kNotGenerated, [&](const sim::Model& model) {
    sim::Scenario scenario = tests::generation(model, 8);
    const auto cached = runtime::generate(scenario, tests::drawn(model), settings, {}, {});
    REQUIRE(cached.tokens.size() == 1);
    CHECK(cached.tokens[0].size() == 8);
    scenario.workload.kv_cache = false;
    CHECK(runtime::generate(scenario, tests::drawn(model), settings, {}, {}).tokens == cached.tokens);
  });
}
