// Random strategies of 2 to 8 ranks, run as threads, against one rank: how far the losses and gradient norms
// of four steps are apart at most. Arguments: how many (300), the first seed (1), and "double" for the plain
// reference in double instead of the processor's kernels: then parameters are compared too.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/runtime/random_strategy.h"
#include "tests/runtime/reference_device.h"
#include "tests/runtime/run_strategy.h"

namespace {

std::string described(const sim::Scenario& s) {
  const sim::Strategy& y = s.strategy;
  return s.model.name + " tp " + std::to_string(y.tensor_parallel) + " pp " +
         std::to_string(y.pipeline_parallel) + " (" + y.schedule + ") cp " +
         std::to_string(y.context_parallel) + " (" + std::string(sim::name(y.context_parallel_comm)) +
         ") ep " + std::to_string(y.expert_parallel) + " etp " + std::to_string(y.expert_tensor_parallel) +
         " dp " + std::to_string(y.data_parallel) + " zero " + std::to_string(y.zero_stage) + " sp " +
         std::to_string(y.sequence_parallel) + " shard group " + std::to_string(y.shard_group) + " offload " +
         std::to_string(y.offload_optimizer) + std::to_string(y.offload_activations) + " order " +
         y.rank_order + " recompute " + std::string(sim::name(y.recompute)) + " " +
         std::to_string(y.recompute_interval);
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
  const bool in_double = argc > 3 && std::string(argv[3]) == "double";
  const double allowed = in_double ? 1e-11 : 1e-5;
  const auto make_device = [in_double] {
    return in_double ? tests::make_reference_device() : runtime::make_cpu_device(1);
  };
  double most = 0;
  int beyond = 0;
  std::map<std::string, int> seen;
  for (int i = 0; i < count; ++i) {
    const sim::Scenario scenario = tests::random_scenario(static_cast<std::uint32_t>(first + i));
    const sim::Strategy& y = scenario.strategy;
    sim::Scenario of_one = scenario;
    of_one.strategy = {};
    const tests::Trained several = tests::train_on_ranks(scenario, settings, make_device),
                         one = tests::train_on_ranks(of_one, settings, make_device);
    double difference = tests::steps_apart(several.report, one.report);
    if (in_double) difference = std::max(difference, tests::parameters_apart(several, one));
    most = std::max(most, difference);
    if (!(difference <= allowed)) {
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
    if (y.shard_group > 0) ++seen["shard groups"];
    if (y.offload_optimizer) ++seen["optimizer on the host"];
    if (y.offload_activations) ++seen["activations on the host"];
    if (y.rank_order != sim::kDefaultRankOrder) ++seen["other order of ranks"];
    if (scenario.model.num_hidden_layers % y.pipeline_parallel != 0) ++seen["uneven layers"];
    if (y.first_stage_layers + y.last_stage_layers > 0) ++seen["ends with layers of their own"];
    if (y.tensor_parallel > 1 && scenario.model.vocab_size % y.tensor_parallel != 0)
      ++seen["uneven vocabulary"];
    if (y.pipeline_parallel > 1 && scenario.model.tie_word_embeddings) ++seen["tied across stages"];
    std::fflush(stdout);
  }
  std::printf("%d strategies: at most %.2e apart, %d by more than %.0e\n", count, most, beyond, allowed);
  for (const auto& [what, times] : seen) std::printf("  %4d %s\n", times, what.c_str());
  return beyond == 0 ? 0 : 1;
}
