// train MODEL...: five steps of training of each, on a text of the presets; losses and gradient norms as
// JSON: for comparing the browser edition's kernels with the native ones.
#include "runtime/train.h"

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <variant>

#include "runtime/model_source.h"
#include "sim/scenario/preset.h"
#include "tests/runtime/small_run.h"

int main(int argc, char** argv) {
  try {
    nlohmann::json all;
    for (int i = 1; i < argc; ++i) {
      const runtime::ModelSource source = runtime::open_model(argv[i]);
      const sim::Scenario scenario = tests::training(source.model);
      runtime::TrainSettings settings;
      settings.steps = 5;
      settings.data = (sim::preset_directory() / "texts" / "factory.txt").string();
      nlohmann::json& losses = all[argv[i]]["losses"];
      nlohmann::json& norms = all[argv[i]]["gradient_norms"];
      runtime::train(scenario, source, settings,
                     [&](const sim::Event& event) {
                       if (const auto* step = std::get_if<sim::StepResult>(&event)) {
                         losses.push_back(step->loss);
                         norms.push_back(step->grad_norm);
                       }
                     },
                     {});
    }
    std::puts(all.dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
}
