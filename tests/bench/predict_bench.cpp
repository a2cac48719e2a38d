// How long a prediction takes, from a scenario to its report: median wall time of repetitions.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "sim/cost/predict.h"
#include "sim/scenario/preset.h"

namespace {

double median_milliseconds(const sim::Scenario& scenario) {
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const sim::Report report = sim::predict(scenario);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (report.rows.empty()) return -1;
    times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return times[4];
}

sim::Scenario training(const char* model, std::int64_t seq_len, std::int64_t micro_batches) {
  sim::Scenario s;
  s.model = sim::load_model_preset(model);
  s.hardware = sim::load_hardware_preset("h100-sxm");
  s.implementation = sim::load_implementation_preset("ridgepoint");
  s.workload.seq_len = seq_len;
  s.workload.global_batch_size = micro_batches;
  return s;
}

sim::Scenario generation(const char* model, std::int64_t new_tokens) {
  sim::Scenario s = training(model, 1024, 1);
  s.workload.task = sim::Task::generate;
  s.workload.max_new_tokens = new_tokens;
  return s;
}

}  // namespace

int main() {
  std::printf("%-60s %12s\n", "prediction", "median ms");
  const auto line = [](const std::string& what, const sim::Scenario& s) {
    std::printf("%-60s %12.3f\n", what.c_str(), median_milliseconds(s));
  };
  line("gpt2-124m, a step of 32 micro-batches of 1,024 tokens", training("gpt2-124m", 1024, 32));
  line("llama-3.1-8b, a step of 8,192 tokens", training("llama-3.1-8b", 8192, 1));
  line("llama-3.1-405b, a step of 8,192 tokens", training("llama-3.1-405b", 8192, 1));
  line("llama-3.1-8b, 128 tokens in, 4,096 out", generation("llama-3.1-8b", 4096));
}
