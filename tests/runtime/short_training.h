// Training runs of a few steps on drawn tokens, from drawn weights.
#pragma once
#include <cstdint>

#include "runtime/train.h"
#include "tests/runtime/small_run.h"
#include "tests/support/temporary_folder.h"

namespace tests {

inline runtime::TrainSettings short_training(const TemporaryFolder& folder, std::int64_t steps,
                                             float learning_rate, int threads) {
  runtime::TrainSettings settings;
  settings.steps = steps;
  settings.learning_rate = learning_rate;
  settings.data = write_tokens(folder.path());
  settings.device.threads = threads;
  return settings;
}

inline sim::Report train(const sim::Scenario& scenario, const runtime::TrainSettings& settings) {
  return runtime::train(scenario, drawn(scenario.model), settings, {}, {});
}

}  // namespace tests
