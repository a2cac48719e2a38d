// Strategies over several ranks against one rank: the ranks are threads of the test.
#include <random>

#include "runtime/thread_ranks.h"
#include "runtime/train.h"
#include "sim/plan/legality.h"
#include "sim/plan/schedule.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

runtime::TrainSettings settings_for(const TemporaryFolder& folder) {
  runtime::TrainSettings settings;
  settings.steps = 4;
  settings.learning_rate = 1e-3f;
  settings.data = tests::write_tokens(folder.path());
  settings.device.threads = 1;
  return settings;
}

// Rank 0's report.
sim::Report train_on_ranks(const sim::Scenario& scenario, const runtime::TrainSettings& settings) {
  sim::Report report;
  runtime::run_thread_ranks(scenario.strategy.devices(), [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    sim::Report own = runtime::train(scenario, tests::drawn(scenario.model), settings, communicator, {}, {});
    if (transport.rank() == 0) report = std::move(own);
  });
  return report;
}

sim::Model small_model(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<std::int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  sim::Model m = random() % 2 == 0 ? tests::small_gpt() : tests::small_llama();
  m.num_hidden_layers = one_of({4, 5, 8});
  m.num_attention_heads = one_of({4, 8});
  m.num_key_value_heads =
      m.position == sim::Position::rope ? one_of({1, 2, 4}) : m.num_attention_heads;
  m.head_dim = 8;
  m.hidden_size = m.position == sim::Position::rope ? 24 : m.num_attention_heads * m.head_dim;
  m.intermediate_size = 64;
  m.vocab_size = one_of({256, 301});
  m.tie_word_embeddings = random() % 2 == 0;
  return m;
}

// A legal strategy of several ranks, drawn at random, over a model drawn at random.
sim::Scenario random_scenario(std::uint32_t seed) {
  std::mt19937 random(seed);
  for (;;) {
    const auto one_of = [&](std::initializer_list<int> values) {
      return values.begin()[random() % values.size()];
    };
    sim::Scenario s = tests::training(small_model(random), 16, 1, 8);
    sim::Strategy& strategy = s.strategy;
    strategy.tensor_parallel = one_of({1, 1, 2, 4});
    strategy.pipeline_parallel = one_of({1, 1, 2, 4});
    strategy.data_parallel = one_of({1, 2, 4});
    strategy.zero_stage = one_of({0, 1, 2, 3});
    strategy.sequence_parallel = random() % 2 == 0;
    const auto schedules = sim::schedule_names();
    strategy.schedule = schedules[random() % schedules.size()];
    strategy.virtual_pipeline = one_of({1, 2});
    strategy.prefetch = one_of({0, 1, 2});
    strategy.gradient_bucket = one_of({0, 20000, 1 << 20});
    strategy.recompute = one_of({0, 1}) == 0 ? sim::Recompute::none : sim::Recompute::full;
    s.implementation.head_chunks = one_of({1, 1, 2});
    s.workload.micro_batch_size = one_of({1, 2});
    const int ranks = strategy.devices();
    const bool runs = sim::placement_of(strategy.schedule) != sim::Placement::two_directions;
    if (ranks >= 2 && ranks <= 8 && runs && sim::validate(s).empty()) return s;
  }
}

void check_equal(const sim::Scenario& scenario, const runtime::TrainSettings& settings) {
  const sim::Strategy& s = scenario.strategy;
  CAPTURE(scenario.model.name, scenario.model.num_hidden_layers, scenario.model.num_key_value_heads,
          scenario.model.vocab_size, scenario.model.tie_word_embeddings, s.tensor_parallel,
          s.pipeline_parallel, s.data_parallel, s.zero_stage, s.sequence_parallel, s.schedule,
          s.virtual_pipeline, s.gradient_bucket, scenario.implementation.head_chunks,
          scenario.workload.micro_batch_size, sim::name(s.recompute));
  sim::Scenario of_one = scenario;
  of_one.strategy = {};
  const sim::Report one = train_on_ranks(of_one, settings), several = train_on_ranks(scenario, settings);
  REQUIRE(several.steps.size() == one.steps.size());
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    CHECK(several.steps[i].loss == Approx(one.steps[i].loss).epsilon(1e-5));
    CHECK(several.steps[i].grad_norm == Approx(one.steps[i].grad_norm).epsilon(1e-5));
  }
}

}  // namespace

TEST_CASE("Thirty random strategies of 2 to 8 ranks have the losses and gradient norms of one rank") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder);
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    check_equal(random_scenario(seed), settings);
  }
}
