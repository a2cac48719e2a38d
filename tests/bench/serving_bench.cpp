// How long an hour of traffic takes to simulate: 10 requests a second, prices from the calibration.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "sim/cost/calibration_preset.h"
#include "sim/scenario/preset.h"
#include "sim/serving/engine_limits.h"
#include "sim/cost/iteration_cost.h"
#include "sim/serving/simulation.h"

int main() {
  sim::Scenario s;
  s.model = sim::load_model_preset("llama-3.1-8b");
  s.hardware = sim::load_hardware_preset("h100-sxm");
  s.implementation = sim::load_implementation_preset("vllm_0.14");
  s.workload.task = sim::Task::generate;
  s.workload.prompt_length = 512;
  s.workload.max_new_tokens = 200;
  const auto calibration = sim::load_calibration_preset("h100-sxm");

  constexpr double kRequestsPerSecond = 10;
  constexpr sim::Seconds kHour{3600};
  const sim::Traffic traffic{.arrivals = sim::poisson_arrivals(
                                 kRequestsPerSecond, kHour,
                                 {.prompt = s.workload.prompt_length, .output = s.workload.max_new_tokens},
                                 1)};
  std::vector<double> times;
  sim::Simulation run;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const sim::IterationCost cost(s, calibration ? &*calibration : nullptr);
    run = sim::simulate(traffic, sim::engine_limits(s),
                        [&](const sim::Iteration& iteration) { return cost.iteration(iteration); });
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + 2, times.end());
  std::printf(
      "an hour at %.0f requests a second: %zu requests, %lld steps, %.0f tokens/s, simulated in %.3f s\n",
      kRequestsPerSecond, run.requests.size(), static_cast<long long>(run.steps), run.output_per_second(),
      times[2]);
}
