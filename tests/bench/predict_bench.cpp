// How long a prediction takes, from a scenario to its report: median wall time of repetitions.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "sim/cost/predict.h"
#include "sim/cost/step_detail.h"
#include "sim/plan/legality.h"
#include "sim/scenario/preset.h"
#include "tests/sim/schedule_run.h"

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

// As Llama 3.1 405B was trained (arXiv 2407.21783, table 4): 16,384 devices, 16 sequences each.
sim::Scenario llama_3_405b() {
  sim::Scenario s = training("llama-3.1-405b", 8192, 2048);
  s.strategy.tensor_parallel = 8;
  s.strategy.sequence_parallel = true;
  s.strategy.pipeline_parallel = 16;
  s.strategy.data_parallel = 128;
  s.strategy.zero_stage = 1;
  return s;
}

// Where a prediction's time goes.
void stages_of_a_prediction(const sim::Scenario& s) {
  const auto timed = [](const char* what, auto work) {
    double best = 1e300;
    for (int i = 0; i < 9; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      work();
      best = std::min(
          best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    std::printf("  %-58s %12.3f\n", what, best);
  };
  const sim::Plan plan = sim::make_plan(s);
  std::size_t actions = 0;
  for (const sim::Program& p : plan.programs) actions += p.actions.size();
  std::printf("of it (%zu actions in %zu stages), best of 9:\n", actions, plan.programs.size());
  timed("validate", [&] { return sim::validate(s).size(); });
  timed("make_plan", [&] { return sim::make_plan(s).ranks; });
  timed("plan_memory of all stages", [&] {
    sim::Bytes sum;
    sim::plan_memory_of_all(plan, sim::Addresses::none, [&](const sim::MemoryPlan& m) { sum += m.arena; });
    return sum.value;
  });
  timed("predict_step: prices and execution",
        [&] { return sim::predict_step(plan, s.hardware).seconds.value > 0; });
  timed("predict the plan", [&] { return sim::predict(plan, s.hardware).rows.size(); });
}

double schedule_milliseconds(const char* name, std::int32_t stages, std::int32_t chunks,
                             std::int32_t micro_batches) {
  const sim::Schedule schedule = sim::make_schedule(name, stages, chunks, micro_batches);
  const std::vector<sim::PassTimes> times(static_cast<std::size_t>(stages), {{1e-3}, {1e-3}, {1e-3}});
  double best = 1e300;
  for (int i = 0; i < 9; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const sim::ScheduleTimes t = sim::run(schedule, times, {1e-5});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (t.duration.value > 0) best = std::min(best, took.count());
  }
  return best;
}

sim::Scenario generation(const char* model, std::int64_t new_tokens) {
  sim::Scenario s = training(model, 1024, 1);
  s.workload.task = sim::Task::generate;
  s.workload.max_new_tokens = new_tokens;
  return s;
}

// The question that evaluation_time.py asks both programs.
sim::Scenario llama_3_70b_on_512() {
  sim::Scenario s = training("llama-3.1-70b", 8192, 1024);
  s.strategy.tensor_parallel = 8;
  s.strategy.sequence_parallel = true;
  s.strategy.pipeline_parallel = 4;
  s.strategy.data_parallel = 16;
  s.strategy.zero_stage = 1;
  return s;
}

}  // namespace

// --one: a single scenario, for whoever compares; without it, the whole list.
int main(int count, char** arguments) {
  if (count == 2 && std::string(arguments[1]) == "--one") {
    std::printf("prediction, with timeline and ledger %.1f\n",
                1e3 * median_milliseconds(llama_3_70b_on_512()));
    return 0;
  }
  std::printf("%-60s %12s\n", "prediction", "median ms");
  const auto line = [](const std::string& what, const sim::Scenario& s) {
    std::printf("%-60s %12.3f\n", what.c_str(), median_milliseconds(s));
  };
  line("gpt2-124m, a step of 32 micro-batches of 1,024 tokens", training("gpt2-124m", 1024, 32));
  line("llama-3.1-8b, a step of 8,192 tokens", training("llama-3.1-8b", 8192, 1));
  line("llama-3.1-405b, a step of 8,192 tokens", training("llama-3.1-405b", 8192, 1));
  line("llama-3.1-405b on 16,384: tp 8, pp 16, dp 128", llama_3_405b());
  stages_of_a_prediction(llama_3_405b());
  line("llama-3.1-8b, 128 tokens in, 4,096 out", generation("llama-3.1-8b", 4096));
  std::printf("%-60s %12.3f\n", "timeline of 1f1b, 64 stages by 512 micro-batches, best of 9",
              schedule_milliseconds("1f1b", 64, 1, 512));
  std::printf("%-60s %12.3f\n", "timeline of zb-h1, 64 stages by 512 micro-batches",
              schedule_milliseconds("zb-h1", 64, 1, 512));
  std::printf("%-60s %12.3f\n", "timeline of interleaved by 4, 64 stages by 512 micro-batches",
              schedule_milliseconds("interleaved", 64, 4, 512));
}
