// Random strategies of 2 to 8 ranks, run as threads, against one rank: how far the losses and gradient norms
// of four steps are apart at most. Arguments: how many (300), the first seed (1).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "runtime/thread_ranks.h"
#include "runtime/train.h"
#include "tests/runtime/random_strategy.h"

namespace {

sim::Report train(const sim::Scenario& scenario, const runtime::TrainSettings& settings) {
  sim::Report report;
  runtime::run_thread_ranks(scenario.strategy.devices(), [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    sim::Report own = runtime::train(scenario, tests::drawn(scenario.model), settings, communicator, {}, {});
    if (transport.rank() == 0) report = std::move(own);
  });
  return report;
}

double apart(const sim::Report& a, const sim::Report& b) {
  double most = a.steps.size() == b.steps.size() ? 0 : HUGE_VAL;
  const auto relative = [](double x, double y) { return std::abs(x - y) / std::abs(y); };
  for (std::size_t i = 0; i < std::min(a.steps.size(), b.steps.size()); ++i)
    most = std::max({most, relative(a.steps[i].loss, b.steps[i].loss),
                     relative(a.steps[i].grad_norm, b.steps[i].grad_norm)});
  return most;
}

std::string described(const sim::Scenario& s) {
  const sim::Strategy& y = s.strategy;
  return s.model.name + " tp " + std::to_string(y.tensor_parallel) + " pp " +
         std::to_string(y.pipeline_parallel) + " (" + y.schedule + ") cp " +
         std::to_string(y.context_parallel) + " (" + std::string(sim::name(y.context_parallel_comm)) +
         ") ep " + std::to_string(y.expert_parallel) + " etp " + std::to_string(y.expert_tensor_parallel) +
         " dp " + std::to_string(y.data_parallel) + " zero " + std::to_string(y.zero_stage) + " sp " +
         std::to_string(y.sequence_parallel);
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 300, first = argc > 2 ? std::atoi(argv[2]) : 1;
  const TemporaryFolder folder;
  runtime::TrainSettings settings;
  settings.steps = 4;
  settings.learning_rate = 1e-3f;
  settings.data = tests::write_tokens(folder.path());
  settings.device.threads = 1;
  double most = 0;
  int beyond = 0;
  std::map<std::string, int> seen;
  for (int i = 0; i < count; ++i) {
    const sim::Scenario scenario = tests::random_scenario(static_cast<std::uint32_t>(first + i));
    const sim::Strategy& y = scenario.strategy;
    sim::Scenario of_one = scenario;
    of_one.strategy = {};
    const double difference = apart(train(scenario, settings), train(of_one, settings));
    most = std::max(most, difference);
    if (!(difference <= 1e-5)) {
      ++beyond;
      std::printf("seed %d: %.2e apart: %s\n", first + i, difference, described(scenario).c_str());
    }
    ++seen[scenario.model.name];
    if (y.pipeline_parallel > 1) ++seen["schedule " + y.schedule];
    if (y.context_parallel > 1) ++seen["context " + std::string(sim::name(y.context_parallel_comm))];
    if (y.expert_parallel > 1) ++seen["expert parallel"];
    if (y.expert_parallel > 1 && y.tensor_parallel > 1) ++seen["expert and tensor parallel"];
    if (y.tensor_parallel > 1) ++seen["tensor parallel"];
    if (y.data_parallel > 1) ++seen["zero " + std::to_string(y.zero_stage)];
    std::fflush(stdout);
  }
  std::printf("%d strategies: at most %.2e apart, %d by more than 1e-5\n", count, most, beyond);
  for (const auto& [what, times] : seen) std::printf("  %4d %s\n", times, what.c_str());
  return beyond == 0 ? 0 : 1;
}
