// Runs that were recorded on a GPU, beside what is predicted of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/report/events.h"
#include "sim/scenario/preset.h"

namespace {

sim::Report recorded(const std::string& name) {
  std::ifstream file(sim::preset_directory() / "recordings" / name);
  sim::Report report;
  for (std::string line; std::getline(file, line);) sim::apply(report, sim::event_from_ndjson(line));
  return report;
}

// The first few choose algorithms for products and capture graphs.
template <class Result>
double steady(const std::vector<Result>& results) {
  constexpr std::ptrdiff_t kFirst = 5;
  std::vector<double> seconds;
  for (const Result& result : results) seconds.push_back(result.duration.value);
  REQUIRE(std::ssize(seconds) > kFirst);
  const auto begin = seconds.begin() + kFirst, middle = begin + (seconds.end() - begin) / 2;
  std::nth_element(begin, middle, seconds.end());
  return *middle;
}

// As was predicted before anything had run on one: by its datasheet and what others measured.
sim::Report by_others(sim::Scenario scenario) {
  scenario.hardware = sim::load_hardware_preset(scenario.hardware.name);
  const auto published = sim::load_calibration_preset(scenario.hardware.name);
  return sim::predict(scenario, &*published);
}

}  // namespace

TEST_CASE(
    "A step recorded on an H200 is what its kernels were measured to take, and inside the band of others' "
    "measurements") {
  const sim::Report run = recorded("gpt2-124m-train-h200.ndjson");
  const double measured = steady(run.steps);
  const sim::Scenario& scenario = run.source.scenario;
  const auto own = sim::load_measured_preset(scenario.hardware.name);
  REQUIRE(own);
  CHECK(std::abs(sim::predict(scenario, &*own).step_time.value / measured - 1) < 0.1);
  const sim::Report expected = by_others(scenario);
  CHECK(expected.step_low.value < measured);
  CHECK(measured < expected.step_high.value);
}

TEST_CASE(
    "A token recorded on an H200 takes what its kernels and others' measurements let expect, within a "
    "tenth") {
  const sim::Report run = recorded("llama-3.2-1b-generate-h200.ndjson");
  const auto own = sim::load_measured_preset(run.source.scenario.hardware.name);
  REQUIRE(own);
  CHECK(std::abs(steady(sim::predict(run.source.scenario, &*own).tokens) / steady(run.tokens) - 1) < 0.1);
  CHECK(std::abs(steady(by_others(run.source.scenario).tokens) / steady(run.tokens) - 1) < 0.1);
}

TEST_CASE(
    "Kernels at the hardware's limits are not held back by a clock that own kernels were measured to have") {
  sim::Scenario scenario = recorded("gpt2-124m-train-h200.ndjson").source.scenario;
  scenario.implementation = sim::load_implementation_preset("ideal");
  const auto own = sim::load_measured_preset(scenario.hardware.name);
  REQUIRE(own);
  const auto step_at = [&](double clock) {
    scenario.hardware.sustained_clock = clock;
    return sim::predict(scenario, &*own).step_time.value;
  };
  CHECK(step_at(0.8) == Approx(step_at(1)).epsilon(1e-12));
}
