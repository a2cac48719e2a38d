// predict SCENARIO...: the reports that are predicted of scenario presets, as JSON, one a line: for comparing
// the browser edition with the native program.
#include "sim/cost/predict.h"

#include <cstdio>

#include "sim/cost/calibration_preset.h"
#include "sim/report/report.h"
#include "sim/scenario/preset.h"

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i) {
      const sim::Scenario scenario = sim::load_scenario_preset(argv[i]);
      const auto calibration = sim::load_calibration_preset(scenario.hardware.name);
      // In short lines: Emscripten's standard output takes a time that grows with the square of a line's
      // length.
      std::printf("%c\n%s\n", i == 1 ? '[' : ',',
                  sim::to_json(sim::predict(scenario, calibration ? &*calibration : nullptr)).c_str());
    }
    std::puts("]");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "predict: %s\n", error.what());
    return 1;
  }
}
